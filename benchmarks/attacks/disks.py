"""Disks that are full, and two programs that write the same thing."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attacks.command import Scores, baseline, same, scores
from attacks.kills import COMPARED
from attacks.process import command, squid, together
from attacks.record import Setting, Tally

KIB = 1024
PAGE = 4
"""KiB by which a file takes room."""
ENOUGH = 2**16
"""KiB on which every verb ends."""


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
        shutil.rmtree(place)


def full(setting: Setting) -> Tally:
    """Every verb that writes, on disks of all sizes from nothing to enough."""
    tally, good = Tally("full disks"), baseline(setting)
    disk, rounds = setting.folder / "disk", setting.times(16)
    for verb in VERBS:
        # What never works would fail on every disk.
        sound = Tally(verb)
        with small_disk(disk, ENOUGH) as mounted:
            seconds = _fill(sound, setting, verb, ENOUGH, mounted, good, sound=math.inf)
            need = _kib(disk)
        if sound.failed or not sound.answered:
            raise RuntimeError(f"squid {verb} does not run on a large disk: {sound.evidence}")
        for number in range(rounds):
            # To 1.5 times what it writes: the disk fills up at every place.
            there = _kib(setting.run) if verb in WITHIN else 0
            kib = there + PAGE + int(1.5 * (need - there) * number / rounds)
            with small_disk(disk, kib) as mounted:
                _fill(tally, setting, verb, kib, mounted, good, seconds)
    return tally


WITHIN = ("calibrate", "evaluate", "report")
"""Verbs that write into the run folder which they read."""
VERBS = ("score", "explain", *WITHIN, "train")


def _kib(folder: Path) -> int:
    """What the files in a folder take of a disk, in whole pages."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(-(-size // (PAGE * KIB)) * PAGE for size in sizes)


def _fill(
    tally: Tally,
    setting: Setting,
    verb: str,
    kib: int,
    mounted: bool,
    good: Scores,
    sound: float,
) -> float:
    """One verb on a disk of that size; the seconds that it took."""
    disk = setting.folder / "disk"
    # What the verb reads lies elsewhere unless it writes into it.
    run, out = setting.run, disk / "out.csv"
    if verb in WITHIN:
        run = disk / "run"
        try:
            shutil.copytree(setting.run, run)
        except (OSError, shutil.Error):
            shutil.rmtree(run, ignore_errors=True)
            return 0.0
    words = {
        "score": ("score", run, setting.images, "--out", out),
        "explain": ("explain", run, setting.images, "--out", disk / "maps"),
        "calibrate": ("calibrate", run, setting.images, "--name", "site", "--few"),
        "evaluate": ("evaluate", run),
        "report": ("report", run),
        "train": ("train", setting.recipe, "--out", disk / "new"),
    }[verb]
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    outcome = squid(*words, file_limit=None if mounted else kib * KIB)
    what = f"{verb} on a disk of {kib} KiB"
    answered = tally.note(outcome, what, sound=sound)
    for name in _damaged(run, before):
        tally.fault("wrong", f"{what}: {name} was cut")
    if not answered:
        return outcome.seconds
    right: dict[str, Callable[[], bool]] = {
        "score": lambda: same(scores(out.read_text(encoding="utf-8")), good),
        "calibrate": lambda: (run / "calibrations" / "site.json").stat().st_size > 0,
        "train": lambda: not any(_differ(disk / "new" / n, setting.run / n) for n in COMPARED),
    }
    tally.answer(right.get(verb, lambda: True)(), f"{what}: it is said to be done, and is not")
    return outcome.seconds


def _damaged(run: Path, before: Mapping[str, bytes]) -> list[str]:
    """Files that are gone, or that are no whole file of their kind."""
    gone = [name for name in before if not (run / name).exists()]
    cut = []
    for path in run.rglob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            cut.append(path.name)
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
