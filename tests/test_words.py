"""One word per thing: replaced words do not come back (docs/explanation/words.md)."""

import ast
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "docs", "benchmarks", "recipes", "tests", ".ci")
SUFFIXES = {".py", ".md", ".toml", ".html", ".css", ".js", ".template", ".json"}
PAST = {"docs/explanation/words.md", "docs/adr/0015-one-typed-evaluation.md", "tests/test_words.py"}
"""Files that name the replaced words because they are about them."""
LOG = "docs/log.md"
RENAMED = "2026-11-18"
"""Entries of the log from this day on have the new words."""

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A part of a name: `silent_witness` has two, `JudgeScore` has two."""


class Word(NamedTuple):
    """Forms of a word that was replaced, and the files in which it has its ordinary meaning."""

    forms: str
    instead: str
    fine: tuple[str, ...] = ()


CHANGES = "CHANGELOG.md"
"""Names the old keys and flags beside the new ones."""

WORDS = (
    Word("judg(e|es|ed|ing|ement|ements)", "discriminator, score, evaluate", (CHANGES,)),
    Word("witness(es)?", "image discriminator"),
    Word("sittings?", "target updates", (CHANGES,)),
    Word("opinions?", "temporal ensembling, targets"),
    # `squid watch --settle`: how long a file must be unchanged.
    Word(
        "settl(e|es|ed|ing)",
        "score distillation",
        (
            CHANGES,
            "src/squid/cli/watching.py",
            "tests/node/*",
            "benchmarks/attacks/*",
        ),
    ),
    Word("doubts?", "score"),
    # The ARIA role of a warning, and what an attacker writes into a name.
    Word("alerts?", "score; caution", ("src/squid/report/page.py", "tests/report/*")),
    Word("banks?", "memory"),
    Word("heard|told", "target updates; written, distinguished, named"),
    Word("taught", "trained"),
    Word("drawings?|redrawn?|redraws", "reconstruction"),
    # Random numbers are drawn, lines of a chart are plotted.
    Word(
        "drawn",
        "reconstructed, plotted",
        (
            "src/squid/train/sampler.py",
            "src/squid/nn/noise.py",
            "src/squid/evaluation/*",
            "tests/evaluation/*",
            "tests/calibration/*",
            "benchmarks/attack*",
            "docs/reference/reliability.md",
            "docs/adr/0001*",
            "docs/adr/0005*",
            "docs/paper.md",
        ),
    ),
    Word("whims?|wobbles?|fickle", "variance, late AUC range"),
    # What an entry of the log concludes.
    Word("verdicts?", "flagged", (LOG,)),
    Word("standings?", "job state"),
    # The Dice coefficient.
    Word(
        "dice",
        "sampler",
        (
            CHANGES,
            "src/squid/nn/unet.py",
            "src/squid/methods/lesion_segmentation.py",
            "src/squid/evaluation/localisation.py",
            "src/squid/cli/printing.py",
            "src/squid/report/tables.py",
            "tests/nn/test_unet.py",
            "tests/evaluation/test_localisation.py",
        ),
    ),
    Word("captured|graphed", "CUDA graph"),
    Word("ablate", "recipes/ablations.toml", (CHANGES,)),
    Word("manieth", "n-th"),
    # Entries of the log are experiments; what a training leaves is a run.
    Word("experiments?", "training, run", ("README.md",)),
    Word("scorers?", "detector"),
    # `typing.Protocol`; how images are acquired.
    Word(
        "protocols?",
        "selection",
        (
            CHANGES,
            "src/squid/inference/__init__.py",
            "src/squid/nn/encoder.py",
            "src/squid/nn/ranks.py",
            "docs/how-to/calibrate-at-your-site.md",
            "docs/adr/0004*",
        ),
    ),
    # Rules of other things than thresholds: how contributions, labels, fusion and tests are made.
    Word(
        "rules?",
        "threshold",
        (
            CHANGES,
            "src/squid/methods/fusion.py",
            "docs/reference/methods.md",
            "docs/how-to/add-a-method.md",
            "docs/paper.md",
        ),
    ),
    # The chance of a random mask, and what a score is not.
    Word(
        "probabilit(y|ies)",
        "standardised",
        (
            CHANGES,
            "src/squid/nn/noise.py",
            "src/squid/train/sampler.py",
            "tests/methods/test_squid*.py",
            "docs/explanation/scores-and-thresholds.md",
            "docs/tutorial.md",
            "docs/paper.md",
        ),
    ),
    Word("controls", "trivial scores"),
    # Cells of DigitAnatomy's grid and of tables; of a benchmark there are jobs.
    Word("cells?", "job", ("[!s]*", "src/squid/[!b]*", "src/squid/benchmark/[fst]*.py")),
)

PHRASES = {
    r"gone through": "iterated",
    r"--(protocol|rule|engine|step)\b": "--selection, --threshold, --backend, train.compile",
    r"\bengine ?= ?.?(onnx|torch)": "backend",
    r"trivial controls|control:": "trivial scores",
    r"threshold\W+normals|normals_threshold|normals\W+paper\b": "healthy, of a threshold",
}


def parts(line: str) -> Iterator[str]:
    """Words of a line and of the identifiers in it, in lower case."""
    return (part.lower() for part in PART.findall(line))


def keys(value: Any) -> Iterator[str]:
    """Keys of a JSON value at every depth."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from keys(part)


@cache
def lines() -> list[tuple[str, int, str]]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    found = []
    for path in [*sorted(ROOT.glob("*.md")), *paths]:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in SUFFIXES and name not in PAST:
            text = path.read_text(encoding="utf-8")
            if name.startswith("benchmarks/results/"):  # commands stay as they were given
                text = "\n".join(keys(json.loads(text)))
            found += [(name, n, line) for n, line in enumerate(text.splitlines(), 1)]
    return [line for line in found if line[0] != LOG] + list(latest(found))


def latest(found: list[tuple[str, int, str]]) -> Iterator[tuple[str, int, str]]:
    """Lines of the log's entries since the words were replaced."""
    day = ""
    for name, number, line in found:
        if name == LOG:
            day = line[3:13] if line.startswith("## ") else day
            if day >= RENAMED:
                yield name, number, line


@cache
def uses() -> dict[str, list[tuple[str, int, str]]]:
    """Lines by each of their words that is a form of a replaced one."""
    replaced = re.compile("|".join(f"(?:{word.forms})" for word in WORDS))
    found: dict[str, list[tuple[str, int, str]]] = {}
    for line in lines():
        for part in set(filter(replaced.fullmatch, parts(line[2]))):
            found.setdefault(part, []).append(line)
    return found


def listed(found: list[tuple[str, int, str]]) -> str:
    return "\n".join(f"{name}:{number}: {line.strip()[:150]}" for name, number, line in found)


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.forms)
def test_replaced_words_stay_out(word: Word) -> None:
    found = [
        line
        for form, lines_of_it in uses().items()
        if re.fullmatch(word.forms, form)
        for line in lines_of_it
        if not any(fnmatch(line[0], path) for path in word.fine)
    ]
    assert not found, f"say instead: {word.instead}\n{listed(found)}"


@pytest.mark.parametrize("phrase", PHRASES)
def test_replaced_phrases_stay_out(phrase: str) -> None:
    found = [line for line in lines() if re.search(phrase, line[2].lower())]
    found = [line for line in found if line[0] != CHANGES]
    assert not found, f"say instead: {PHRASES[phrase]}\n{listed(found)}"


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.forms)
def test_no_exception_is_left_over(word: Word) -> None:
    named = [
        name for form, at in uses().items() if re.fullmatch(word.forms, form) for name, *_ in at
    ]
    unused = [path for path in word.fine if not any(fnmatch(name, path) for name in named)]
    assert unused == []


@pytest.mark.parametrize(
    "line", ["the judge of images", "self._doubt = 1", "silent_witness", "JudgeScore", "DICE"]
)
def test_the_check_finds_words_in_identifiers(line: str) -> None:
    assert any(re.fullmatch(word.forms, part) for word in WORDS for part in parts(line))


def test_the_check_reads_every_kind_of_file() -> None:
    assert {Path(name).suffix for name, *_ in lines()} == SUFFIXES
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md"} <= {name for name, *_ in lines()}
    days = [line[3:13] for name, _, line in lines() if name == LOG and line.startswith("## ")]
    assert days
    assert min(days) >= RENAMED


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string that stands alone, so also those of fields and constants."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_docstrings_begin_with_what_a_thing_is() -> None:
    files = [
        path
        for folder in ("src", "benchmarks", "docs", "tests", ".ci")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {text[:80]}"
        for path in sorted(files)
        for number, text in docstrings(path)
        if re.match(r"of\b", text.strip(), re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
