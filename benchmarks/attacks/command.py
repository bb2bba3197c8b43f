"""`squid score` on folders of damaged files, and every verb with random options."""

import csv
import io
import math
import os
import random
import shutil
import stat
from pathlib import Path

from attacks.images import damaged, seeds
from attacks.process import Outcome, must, squid
from attacks.record import Setting, Tally

FILES = 100
"""Damaged files of one call."""
TOLERANCE = 1e-5
"""Difference of scores, relative to the larger one or to 1, that counts as none."""

Scores = dict[str, tuple[float, str]]
"""Score and flag by file name."""


def scores(text: str) -> Scores:
    """What `score --format csv` wrote; images without a score are left out."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return {
        Path(row["image"]).name: (float(row["score"]), row["flagged"])
        for row in rows
        if row.get("score")
    }


def same(found: Scores, expected: Scores) -> bool:
    """The same images with the same scores and flags."""
    return found.keys() == expected.keys() and all(
        math.isclose(found[name][0], score, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        and found[name][1] == flag
        for name, (score, flag) in expected.items()
    )


def baseline(setting: Setting) -> Scores:
    """The right answer for the good images."""
    found = scores(must("score", setting.run, setting.images, "--format", "csv").out)
    if len(found) != len(list(setting.images.iterdir())):
        raise RuntimeError("Not every good image has a score.")
    return found


def files(setting: Setting) -> Tally:
    """Each damaged file is scored or named with the reason; good ones keep their score."""
    tally, good = Tally("squid score: damaged files"), baseline(setting)
    originals = list(seeds().items())
    total = setting.times(6_000)
    for start in range(0, total, FILES):
        rng = setting.random(f"files/{start}")
        folder = Path(shutil.copytree(setting.images, setting.folder / f"files-{start}"))
        names = []
        for number in range(start, min(start + FILES, total)):
            kind, data = originals[number % len(originals)]
            names.append(f"{number:06}.{kind.split()[0]}")
            (folder / names[-1]).write_bytes(damaged(data, rng)[1])
        outcome = squid("score", setting.run, folder, "--format", "csv")
        _count(tally, outcome, names, good, f"files from {start}")
        shutil.rmtree(folder)
    return tally


def _count(tally: Tally, outcome: Outcome, names: list[str], good: Scores, what: str) -> None:
    # One call is many inputs: they count one by one, the call's time and faults once.
    if not tally.note(outcome, what, inputs=len(names)):
        return
    found = scores(outcome.out)
    scored = {name for name in names if name in found}
    tally.answered += len(scored)
    tally.refused += len(names) - len(scored)
    printed = outcome.out + outcome.err
    lost = [name for name in names if name not in printed]
    strange = [name for name, (score, _) in found.items() if not math.isfinite(score)]
    kept = same({name: found[name] for name in good if name in found}, good)
    for name in lost:
        tally.fault("wrong", f"{what}: {name} is neither scored nor named")
    for name in strange:
        tally.fault("wrong", f"{what}: {name} has the score {found[name][0]}")
    if not kept:
        tally.fault("wrong", f"{what}: good images changed their scores")


WORDS = (
    "--rate", "--format", "--out", "--device", "--backend", "--precision", "--strict", "--kind",
    "--set", "--selection", "--threshold", "--seeds", "--devices", "--nodes", "--resume",
    "--overwrite", "--list", "--damaged", "--unverified", "--fdr", "--worklist", "--steps",
    "--calibration", "--dicom-out", "--gsps", "--values", "--name", "--by", "--on-average",
    "--confidence", "--few", "--dry-run", "--prevalence", "--settle", "--help", "--version", "--",
)  # fmt: skip
VALUES = (
    "0", "1", "-1", "0.1", "nan", "inf", "1e999", "", " ", "-", "table", "csv", "json", "npy",
    "auto", "cpu", "cuda", "onnx", "torch", "bf16", "float32", "final", "best_epoch", "healthy",
    "gradcam", "residual", "method.size=1e9", "method.width=-1", "data.root=/", "seed=x", "=",
    "[red]", "\\[/]", "\x1b[31m", "\udcff", "é" * 300, "..", "device", "/proc/self/mem", "*",
)  # fmt: skip
VERBS: tuple[tuple[str, ...], ...] = (
    ("score",), ("explain",), ("evaluate",), ("compare",), ("report",), ("data", "show"),
    ("data", "check"), ("calibrate",), ("train",), ("convert",), ("watch", "--once"),
)  # fmt: skip


def options(setting: Setting) -> Tally:
    """Random options and values in front of, behind and instead of the right ones."""
    tally = Tally("command line: random options")
    work = setting.folder / "work" / "here"
    for number in range(setting.times(1_500)):
        rng = setting.random(f"options/{number}")
        shutil.rmtree(work.parent, ignore_errors=True)
        shutil.copytree(setting.run, work / "run")
        shutil.copytree(setting.images, work / "images")
        _device(work / "device")
        image = min((work / "images").iterdir())
        shutil.copy(setting.recipe, work)
        entries = (work / "run", image, work / setting.recipe.name, work / "new.csv")
        places = [str(path) for path in entries]
        words = [*rng.choice(VERBS), *_words(rng, places)]
        outcome = squid(*words, folder=work)
        if tally.note(outcome, repr(words)):
            tally.answered += 1
    return tally


def _device(path: Path) -> None:
    """What is written there is gone, as in /dev/null, but no other program needs it."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to(os.devnull)


def _words(rng: random.Random, places: list[str]) -> list[str]:
    begin = places[:2] if rng.random() < 0.7 else rng.sample(places, rng.randint(0, 3))
    made = list(begin)
    for _ in range(rng.randint(0, 4)):
        word = rng.choice(WORDS)
        made.insert(rng.randint(0, len(made)), word)
        if rng.random() < 0.8:
            made.insert(made.index(word) + 1, rng.choice((*VALUES, *places)))
    return made
