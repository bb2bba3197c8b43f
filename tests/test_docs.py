"""The documentation says what the code says, and points to what is there."""

import re
import runpy
from pathlib import Path

import pytest

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
}


@pytest.mark.parametrize("name", MADE)
def test_made_pages_are_up_to_date(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs/reference/generate.py"))
    committed = (ROOT / MADE[name]).read_text(encoding="utf-8")
    assert committed == made[f"{name}_page"](), "run: python docs/reference/generate.py"


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
