"""What reaches a terminal, and where a file may be written."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from squid.cli.printing import check_target, csv_output, escaped, print_csv
from squid.errors import ConfigError
from squid.outputs.names import printable

NAMES = st.text(st.sampled_from("\\[]/=#@a1 red"), max_size=12)


def shown(markup: str) -> str:
    console = Console(file=io.StringIO(), emoji=False, width=400, markup=True)
    console.print(markup, highlight=False, soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@given(NAMES, NAMES)
def test_every_letter_of_a_name_is_printed(one: str, other: str) -> None:
    line = shown(f"[bold]{escaped(one)}[/]{escaped(other)}|")
    assert line == f"{printable(one)}{printable(other)}|\n"


def test_a_backslash_before_a_bracket_is_printed() -> None:
    for name in (r"a\[x.png", r"a\\[x.png", r"a\[red]x.png", "a[red]x.png", "a\\"):
        assert shown(escaped(name)) == f"{name}\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS = [("\x1b]0;title\x07.png", 1), ("two\nlines", 2), ("r\u00e9union", 3)]


def test_a_terminal_gets_no_commands_from_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    print_csv(["image", "number"], ROWS)
    assert out.getvalue().splitlines() == [
        "image,number", r"\x1b]0;title\x07.png,1", r'"two\nlines",2', "r\u00e9union,3",
    ]  # fmt: skip


def test_csv_in_a_pipe_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    print_csv(["image", "number"], ROWS)
    assert csv_output() is out
    assert "\x1b]0;title\x07.png,1\r\n" in out.getvalue()


@pytest.mark.parametrize("name", ["s.txt", "scores", "s.csv.gz", ".csv"])
def test_a_name_without_a_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"end it in \.csv or \.json, or add --format"):
        check_target(tmp_path / name, None)
    assert check_target(tmp_path / name, "csv") == "csv"  # type: ignore[arg-type]
    assert check_target(tmp_path / name, "json") == "json"  # type: ignore[arg-type]
    assert not (tmp_path / name).exists()
