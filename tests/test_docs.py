"""The documentation says what the code says, and points to what is there."""

import re
import runpy
from pathlib import Path

import pytest

from squid.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:src|tests|docs|recipes|benchmarks)/[\w./-]+\.(?:py|md|toml|html|css))`")
SYMBOL = re.compile(r"`([\w/]+\.py)::(\w+)`")


MADE = {
    "recipe": "docs/reference/recipe.md",
    "cli": "docs/reference/cli.md",
    "comparison": "docs/reference/comparison.md",
    "methods": "docs/reference/methods.md",
    "readme": "README.md",
    "results": "docs/results.md",
}


@pytest.mark.parametrize("name", MADE)
def test_made_pages_are_up_to_date(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs/reference/generate.py"))
    committed = (ROOT / MADE[name]).read_text(encoding="utf-8")
    assert committed == made[f"{name}_page"](), "run: python docs/reference/generate.py"


CITED = {
    "91.1": "SimSID, linked",
    "92.1": "AnatPaste, linked",
    "0.5 ± 0.1": "another setting; log",
    "0.98": "agreement of stops; log",
    "0.9": "an estimate, called so",
    "90.9 ± 0.6": "rates that fall to zero; log",
}
"""Numbers of the results' text that no file in benchmarks/results has, and where they are from."""


def test_no_number_of_the_results_is_typed_by_hand() -> None:
    """Numbers come from files by name; what is left over is cited."""
    text = (ROOT / "docs/results.template").read_text(encoding="utf-8")
    for taken in (r"```.*?```", r"\{\{.*?\}\}", r"\]\([^)]*\)"):
        text = re.sub(taken, "", text, flags=re.DOTALL)
    assert set(re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", text)) == set(CITED)


@pytest.fixture(scope="module")
def measured() -> dict[str, str]:
    made = runpy.run_path(str(ROOT / "docs/reference/measured.py"))
    return dict(made["numbers"]())


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", "(test AUC {digits demo auc})"),
        (
            "docs/explanation/scores-and-thresholds.md",
            "AUC on ZhangLab would change by {stops 1} points (n = 5); that of one member alone by "
            "up to {stops member to}.",
        ),
        (
            "docs/explanation/scores-and-thresholds.md",
            "has an AUC of {zhanglab trivial minus sharpness auc}.",
        ),
        (
            "docs/explanation/scores-and-thresholds.md",
            "the same trivial score has an AUC of {nih trivial minus sharpness auc}.",
        ),
    ],
)
def test_numbers_in_other_pages_are_those_of_the_files(
    page: str, sentence: str, measured: dict[str, str]
) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert re.sub(r"\{(.+?)\}", lambda found: measured[found[1]], sentence) in text


def test_rounded_numbers_in_other_pages_are_those_of_the_files(measured: dict[str, str]) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    sharpness = float(measured["zhanglab trivial minus sharpness auc"])
    assert f"has an AUC of {sharpness:.0f}." in readme
    scores = (ROOT / "docs/explanation/scores-and-thresholds.md").read_text(encoding="utf-8")
    ranges = [float(measured[f"zhanglab {row} best_epoch late range"].partition(" ")[0])
              for row in ("reference", "ours")]  # fmt: skip
    assert "varies by {:.0f} points in the authors' setting and by {:.0f} in ours".format(
        *ranges
    ) in " ".join(scores.split())


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_recipes_in_pages_are_read(tmp_path: Path) -> None:
    """Each block of TOML that names a method is a whole recipe."""
    found = 0
    for page in PAGES:
        for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            if "[method]" in block and "[data]" in block:
                (tmp_path / "recipe.toml").write_text(block)
                read_recipe(tmp_path / "recipe.toml")
                found += 1
    assert found >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http:", "https:", "mailto:"))]
    assert [target for target in local if not _resolves(page, target)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_paper_page_names_what_is_in_the_code() -> None:
    """`nn/memory.py::read` is a definition or a field in that file."""
    cited = set(SYMBOL.findall((ROOT / "docs/paper.md").read_text(encoding="utf-8")))
    assert len(cited) > 50
    assert sorted(f"{file}::{name}" for file, name in cited if not _defines(file, name)) == []


def test_every_page_is_checked() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "docs/paper.md", "docs/log.md", "docs/reference/recipe.md"} <= names


def _defines(file: str, name: str) -> bool:
    path = ROOT / "src/squid" / file
    definition = rf"^\s*(?:def |class ){name}\b|^{name}\b.*="
    return path.is_file() and bool(re.search(definition, path.read_text("utf-8"), re.MULTILINE))


def _resolves(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
