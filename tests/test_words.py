"""One word per thing: replaced words do not come back (docs/explanation/words.md)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "docs", "benchmarks", "recipes")
SUFFIXES = {".py", ".md", ".toml", ".html", ".css"}
PAST = {"docs/log.md", "docs/explanation/words.md", "docs/adr/0015-one-typed-evaluation.md"}
"""The log's past entries keep the words of their day."""

REPLACED = {
    r"judg(e|es|ed|ing)": "discriminator, score, evaluate",
    r"witness(es)?": "image discriminator",
    r"sittings?|opinions?": "temporal ensembling, target updates",
    r"settl(e|es|ed|ing)": "score distillation",
    r"doubts?": "score",
    r"drawings?|redrawn?|redraws": "reconstruction",
    r"whims?|wobbles?|fickle": "variance, late AUC range",
    r"verdicts?": "flagged",
    r"standings?": "job state",
    r"dice": "sampler",
    r"graphed": "CUDA graph",
    r"ablate": "recipes/ablations.toml",
    r"so-manieth": "n-th",
    r"gone through": "iterated",
    r"told from": "distinguished",
    r"--(protocol|rule|engine|step)\b": "--selection, --threshold, --backend, train.compile",
    r"protocol ?=|engine ?= ?.onnx": "selection, backend",
    r"trivial controls|control:": "trivial scores",
}


def lines() -> Iterator[tuple[str, int, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in SUFFIXES and name not in PAST:
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    yield name, number, line


@pytest.mark.parametrize("word", REPLACED)
def test_replaced_words_stay_out(word: str) -> None:
    pattern = re.compile(rf"(?<![\w-])(?:{word})(?!\w)")
    found = [f"{name}:{n}: {line.strip()}" for name, n, line in lines() if pattern.search(line)]
    assert not found, f"say instead: {REPLACED[word]}\n" + "\n".join(found)


def test_the_check_finds_a_word() -> None:
    assert re.search(r"(?<![\w-])(?:judg(e|es|ed|ing))(?!\w)", "the judge of images")
    assert sum(1 for _ in lines()) > 10_000
