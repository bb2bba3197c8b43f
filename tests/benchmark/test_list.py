"""Before the first job of a benchmark: its rows, their time, and whether the data are there."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from squid.benchmark import ResultStore, plan_benchmark
from squid.benchmark.datasets import read, sections_without_data
from squid.cli import app
from squid.errors import DataError
from squid.recipe import Recipe

ROWS = """
[rows.vae]
[rows.vae_with_a_very_long_name_and_a_small_latent_code_one]
method = { name = "vae", latent = 4 }
[rows.vae_with_a_very_long_name_and_a_small_latent_code_two]
method = { name = "vae", latent = 8 }

[sections.digits]
data = { name = "digitanatomy", train = 32, validation = 10, test = 12 }
method = { size = 48 }
[sections.more_digits]
rows = ["vae"]
data = { name = "digitanatomy", train = 32, validation = 10, test = 12 }
method = { size = 48, latent = 2 }
[sections.children]
rows = ["vae"]
data = { name = "zhanglab" }
[sections.patients]
rows = ["vae"]
data = { name = "chexpert" }
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SQUID_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.toml"
    path.write_text(ROWS)
    return path


def listed(recipe: Path, *options: str) -> str:
    made = CliRunner().invoke(app, ["benchmark", str(recipe), "--list", *options])
    assert made.exit_code == 0, made.output
    return made.output


def test_sections_without_data_are_marked(recipe: Path, tmp_path: Path) -> None:
    lines = listed(recipe, "--sections", "digits,children").splitlines()
    marked = [line for line in lines if "no data" in line]
    assert len(marked) == 2  # in the table, and the reason below it
    assert all("children" in line for line in marked)
    assert str(tmp_path / "data" / "zhanglab") in marked[1]
    assert "SQUID_DATA" in marked[1]


def test_rows_can_be_distinguished_in_eighty_columns(recipe: Path) -> None:
    output = listed(recipe, "--sections", "digits", "--seeds", "9")
    assert all(len(line) <= 80 for line in output.splitlines()[:-1])
    columns = [line.split("│") for line in output.splitlines() if line.startswith("│")]
    names = "".join(column[2].strip() for column in columns)
    for name in ("one", "two"):
        assert f"vae_with_a_very_long_name_and_a_small_latent_code_{name}" in names


def test_no_time_is_given_for_what_was_never_measured(recipe: Path) -> None:
    *_, left, _, _, total = listed(recipe, "--sections", "patients").splitlines()
    assert "│ ?" in left
    assert total == "1 rows of unknown length"


def test_each_dataset_is_looked_at_once(recipe: Path, tmp_path: Path) -> None:
    plan = plan_benchmark(recipe, tmp_path / "out")
    seen: list[str] = []

    def look(recipe: Recipe) -> None:
        seen.append(recipe.data.name)
        if recipe.data.name == "digitanatomy":
            raise DataError("There are no digits.")

    found = sections_without_data(plan, ResultStore(plan), look)
    assert seen == ["digitanatomy", "zhanglab", "chexpert"]
    assert found == dict.fromkeys(["digits", "more_digits"], "There are no digits.")


def test_a_refused_benchmark_names_the_sections_that_can_run(recipe: Path, tmp_path: Path) -> None:
    chosen = ["--sections", "digits,children,patients,more_digits", "--out", str(tmp_path / "out")]
    made = CliRunner().invoke(app, ["benchmark", str(recipe), *chosen])
    assert isinstance(made.exception, DataError)
    assert "Sections children, patients cannot be run" in str(made.exception)
    assert "add --sections digits,more_digits" in str(made.exception)
    assert not (tmp_path / "out").exists()


def test_data_are_read_and_not_only_found(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "zhanglab").mkdir(parents=True)  # there, and empty
    assert "no data" not in listed(recipe, "--sections", "children")
    plan = plan_benchmark(recipe, tmp_path / "out", sections=["children"])
    assert list(sections_without_data(plan, ResultStore(plan), read)) == ["children"]
