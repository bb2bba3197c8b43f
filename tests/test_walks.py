"""The walks through the code name files and symbols that are there, and few of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/explanation/walks.md").read_text(encoding="utf-8")
MOST = 8


class Station(NamedTuple):
    """A file, and what the walk says of it."""

    file: str
    text: str


def walks() -> dict[str, list[Station]]:
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        items = re.split(r"^\d+\. `", body, flags=re.MULTILINE)[1:]
        found[heading] = [Station(*item.split("`:", maxsplit=1)) for item in items]
    return found


WALKS = walks()
STATIONS = [station for stations in WALKS.values() for station in stations]


def names(station: Station) -> list[str]:
    """What its text calls by a name of the code."""
    quoted: list[str] = re.findall(r"`([^`]+)`", station.text)
    return [
        name
        for name in quoted
        if re.fullmatch(r"_?[A-Za-z]\w*(\.\w+)?", name) and not is_file(name)
    ]


def is_file(name: str) -> bool:
    return name.endswith((".py", ".toml", ".json", ".csv"))


def defined(path: Path) -> Iterator[str]:
    """Functions and classes of a file, methods with and without their class."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef):
                yield from (inner.name, f"{node.name}.{inner.name}")


def test_there_are_three_walks() -> None:
    assert list(WALKS) == ["One training image", "One scored image", "One benchmark row"]


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_has_at_most_eight_files(walk: str) -> None:
    files = {station.file for station in WALKS[walk]}
    for station in WALKS[walk]:
        files |= {name for name in re.findall(r"`([^`]+)`", station.text) if name.endswith(".py")}
    assert len(WALKS[walk]) > 4
    assert len(files) <= MOST


@pytest.mark.parametrize("station", STATIONS, ids=lambda one: one.file)
def test_what_a_station_names_is_in_its_file(station: Station) -> None:
    path = ROOT / station.file
    assert path.is_file()
    text, known = path.read_text(encoding="utf-8"), set(defined(path))
    # Classes and methods are looked for where they are defined, other words where they are used.
    for name in names(station):
        owner, _, member = name.partition(".")
        if owner in known and member:
            assert name in known, f"{station.file} does not define {name}"
        else:
            assert all(re.search(rf"\b{part}\b", text) for part in name.split(".")), name
    assert any(name in known for name in names(station))
