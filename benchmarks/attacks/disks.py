"""Disks that are full, and two programs that write the same thing."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attacks.command import same, scores
from attacks.kills import COMPARED
from attacks.process import command, squid, together
from attacks.record import Setting, Tally

KIB = 1024


@contextmanager
def small_disk(place: Path, kib: int) -> Iterator[bool]:
    """A file system of that size at `place`; False where only the system's owner may make one."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


def full(setting: Setting) -> Tally:
    """Every verb that writes, on disks of all sizes from nothing to enough."""
    tally = Tally("full disks")
    need = sum(path.stat().st_size for path in setting.run.rglob("*") if path.is_file()) // KIB
    rounds = setting.times(16)
    for number in range(rounds):
        # From a few KiB to 1.5 times what a run folder takes: the disk fills up at every place.
        kib = 8 + int(1.5 * need * number / rounds)
        for verb in ("score", "explain", "calibrate", "evaluate", "report", "train"):
            with small_disk(setting.folder / "disk", kib) as mounted:
                _fill(tally, setting, verb, kib, mounted)
    return tally


def _fill(tally: Tally, setting: Setting, verb: str, kib: int, mounted: bool) -> None:
    disk = setting.folder / "disk"
    # What the verb reads lies elsewhere unless it writes into it.
    run, out = setting.run, disk / "out.csv"
    if verb in ("calibrate", "evaluate", "report"):
        run = disk / "run"
        try:
            shutil.copytree(setting.run, run)
        except (OSError, shutil.Error):
            shutil.rmtree(run, ignore_errors=True)
            return
    words = {
        "score": ("score", run, setting.images, "--out", out),
        "explain": ("explain", run, setting.images, "--out", disk / "maps"),
        "calibrate": ("calibrate", run, setting.images),
        "evaluate": ("evaluate", run),
        "report": ("report", run),
        "train": ("train", setting.recipe, "--out", disk / "new"),
    }[verb]
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    outcome = squid(*words, file_limit=None if mounted else kib * KIB)
    what = f"{verb} on a disk of {kib} KiB"
    answered = tally.note(outcome, what)
    changed = _damaged(run, before)
    if not answered:
        if changed:
            tally.fault("wrong", f"{what}: {', '.join(changed)} was cut")
        return
    tally.answer(verb != "score" or out.stat().st_size > 0, f"{what}: an empty file")


def _damaged(run: Path, before: dict[str, bytes]) -> list[str]:
    """Files that are gone, or shorter than before and no whole file of their kind."""
    gone = [name for name in before if not (run / name).exists()]
    cut = []
    for name, data in before.items():
        path = run / name
        if name in gone or path.read_bytes() == data:
            continue
        try:
            json.loads(path.read_text()) if name.endswith(".json") else None
        except ValueError:
            cut.append(name)
    return gone + cut


def two_writers(setting: Setting) -> Tally:
    """Two scorings with one output, two trainings with one folder, at the same time."""
    tally = Tally("two writers")
    halves = _halves(setting)
    expected = [scores(squid("score", setting.run, one, "--format", "csv").out) for one in halves]
    for number in range(setting.times(40)):
        out = setting.folder / f"scores-{number}.csv"
        outcomes = together([command("score", setting.run, one, "--out", out) for one in halves])
        ended = [tally.note(one, f"scoring {number}") for one in outcomes]
        found = scores(out.read_text(encoding="utf-8")) if out.exists() else {}
        right = any(same(found, one) for one in expected) or not any(ended)
        tally.answer(right, f"scorings {number}: rows of both in one file")
    good = setting.folder / "good"
    squid("train", setting.recipe, "--out", good)
    for number in range(setting.times(10)):
        run = setting.folder / f"run-{number}"
        outcomes = together([command("train", setting.recipe, "--out", run)] * 2)
        ended = [tally.note(one, f"training {number}") for one in outcomes]
        different = [n for n in COMPARED if _differ(run / n, good / n)] if any(ended) else []
        tally.answer(ended.count(True) == 1 and not different, f"trainings {number}: {different}")
        shutil.rmtree(run)
    return tally


def _halves(setting: Setting) -> list[Path]:
    """Two folders of other images."""
    good = sorted(setting.images.iterdir())
    halves = [setting.folder / "first", setting.folder / "second"]
    for half, images in zip(halves, (good[::2], good[1::2]), strict=True):
        half.mkdir()
        for image in images:
            shutil.copy(image, half)
    return halves


def _differ(one: Path, other: Path) -> bool:
    return other.is_file() and (not one.is_file() or one.read_bytes() != other.read_bytes())
