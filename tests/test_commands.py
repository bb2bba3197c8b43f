"""Every `squid` command that the documentation names has its verb and its flags."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from squid.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAST = {"docs/log.md", "CHANGELOG.md"}
"""Pages that name commands as they were."""
PAGES = sorted(
    name
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"))
    for path in folder.glob(pattern)
    if (name := path.relative_to(ROOT).as_posix()) not in PAST
)
LINE = re.compile(r"^\s*(?:\w+=\S+ )*(squid [a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`(squid [a-z][^`]*)`")
FEWEST = 100
"""Commands that all pages together have at least."""


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command after `squid`, without comments, pipes and redirections."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for command in [*LINE.findall(blocks), *INLINE.findall(prose)]:
        words = shlex.split(command, comments=True)[1:]
        ends = (n for n, word in enumerate(words) if word in ("|", ">", "&&", ";"))
        yield words[: next(ends, len(words))]


def mistake(words: list[str]) -> str | None:
    """What is wrong with a command; None where nothing is."""
    command: Any = typer.main.get_command(app)
    # Typer brings its own Click, whose groups are no `click.Group`.
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        known = command.commands.get(words[0])
        if known is None:
            return f"there is no verb {words[0]}"
        command, words = known, words[1:]
    flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    used = {word.partition("=")[0] for word in words if word.startswith("--")}
    wrong = used - flags - {"--help"}
    return f"{command.name} has no {', '.join(sorted(wrong))}" if wrong else None


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_their_verbs_and_flags(page: str) -> None:
    wrong = {" ".join(words): why for words in commands(page) if (why := mistake(words))}
    assert wrong == {}


def test_commands_are_found() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) >= FEWEST
    assert mistake(["score", "run", "--no-such"]) == "score has no --no-such"
    assert mistake(["scores"]) == "there is no verb scores"
    assert mistake(["data", "check", "x"]) is None
