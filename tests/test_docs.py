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


UNIT = r"(?:s|ms|min|minutes?|hours?|h|MB|GB|MiB|GiB|points?|images/s|%)"
QUANTITY = re.compile(rf"(?<![\w.,-])(\d[\d.,]*(?: to \d[\d.,]*)? {UNIT})(?!\w)")
CITED_QUANTITIES = {
    "docs/results.template": {
        "95 %": "the intervals' level",
        "10 %": "a rate that was asked for",
        "130 s": "compiling; log",
        "240 s": "compiling; log",
        "300 s": "compiling; log",
        "200 s": "an estimate; log",
    },
    "README.md": {
        "10 %": "a rate that was asked for",
        "0.8 %": "checked below, as the next three",
        "0.7 %": "",
        "46.7 %": "",
        "62.2 %": "",
    },
    "docs/tutorial.md": {
        "238 images/s": "an example of a line, said to depend on the machine",
        "10 %": "a rate that was asked for",
        "16.5 %": "checked below",
    },
}
"""Numbers with a unit that no file has, or that another test checks, by page."""


@pytest.mark.parametrize("page", CITED_QUANTITIES)
def test_no_quantity_is_typed_by_hand(page: str) -> None:
    """Seconds, percent, points, also whole ones; a range counts once."""
    text = (ROOT / page).read_text(encoding="utf-8")
    made = r"<!-- Made by docs/reference/generate\.py\. -->.*?<!-- Until here\. -->"
    for taken in (made, r"```.*?```", r"\{\{.*?\}\}", r"\]\([^)]*\)"):
        text = re.sub(taken, "", text, flags=re.DOTALL)
    found = set(QUANTITY.findall(" ".join(text.split())))
    assert found <= set(CITED_QUANTITIES[page]), "name the file's number, or cite it"
    if page.endswith(".template"):
        assert found == set(CITED_QUANTITIES[page]), "cited and no more there"


def test_quantities_are_recognised() -> None:
    text = "in 3 s, 660 to 920 s, (130 s), 1,234.5 ms, 10 % and 2 points; `k = 5`, 12 seeds, v1.2 s"
    assert QUANTITY.findall(text) == [
        "3 s", "660 to 920 s", "130 s", "1,234.5 ms", "10 %", "2 points",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> dict[str, str]:
    made = runpy.run_path(str(ROOT / "docs/reference/measured.py"))
    return dict(made["numbers"]())


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", "(test AUC {digits demo auc})"),
        (
            "README.md",
            "the fusion's heatmap hits {rsna_pa fusion hits} % of the radiologists' boxes within "
            "PA and {rsna_ap fusion hits} % within AP, the mean of all boxes, which knows no "
            "image, {rsna_pa mean box hits} % and {rsna_ap mean box hits} %.",
        ),
        ("docs/tutorial.md", "the demo has {digits demo false alarms} %, because"),
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
    tutorial = " ".join((ROOT / "docs/tutorial.md").read_text(encoding="utf-8").split())
    words = ("no", "one", "two", "three", "four", "five")[int(measured["digits demo minutes"])]
    assert f"It takes about {words} minutes on two CPU cores" in tutorial
    assert f"in {words} minutes on two idle cores" in readme
    assert f"the demo has about {float(measured['digits demo auc']):.0f}." in tutorial
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
