"""Trainings and scorings that are killed at a random moment, gone on with, and compared with one
that was left alone."""

import shutil
import signal
from pathlib import Path

from attacks.process import Outcome, squid
from attacks.record import Setting, Tally

COMPARED = ("model.safetensors", "training.safetensors", "calibration.json", "snapshots.npz")
"""Files of a run folder that must be the same to the byte; they hold no times."""
OFTEN = ("--set", "train.save_minutes=0.0001")
"""A state after every step."""
MOST = 6
"""Kills of one training."""


def training(setting: Setting) -> Tally:
    """`squid train`, killed, then `--resume`, killed again, until it ends."""
    tally = Tally("training: killed")
    good = setting.folder / "good"
    began = squid("train", setting.recipe, "--out", good, "--device", "cpu", *OFTEN)
    if began.code != 0:
        raise RuntimeError(f"The training does not run: {began.err}")
    kills, number = 0, 0
    while kills < setting.times(60):
        rng = setting.random(f"kills/{number}")
        run = setting.folder / f"killed-{number}"
        for _ in range(MOST):
            sent = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            moment = rng.uniform(0.02, 1.2) * began.seconds
            outcome = _go_on(setting, run, kill_after=moment, sent=sent)
            if not outcome.killed or outcome.code == 0:
                break
            kills += 1
            tally.tried += 1
        else:
            outcome = _go_on(setting, run)
        _end(tally, outcome, run, good, f"training {number}")
        number += 1
    return tally


def _go_on(
    setting: Setting,
    run: Path,
    *,
    kill_after: float | None = None,
    sent: signal.Signals = signal.SIGKILL,
) -> Outcome:
    """Begin the training, or go on with what an earlier call left."""
    words: tuple[str | Path, ...] = ("train", "--resume", run)
    if not (run / "recipe.toml").exists():
        words = ("train", setting.recipe, "--out", run, *OFTEN)
    return squid(*words, "--device", "cpu", kill_after=kill_after, sent=sent)


def _end(tally: Tally, outcome: Outcome, run: Path, good: Path, what: str) -> None:
    """The last call ended by itself: as well as if nothing had been killed?"""
    # A kill after the last file but before the end of the process leaves a finished run.
    finished = "already finished" in outcome.err
    if not finished:
        tally.tried -= 1  # this call counts with the kills before it
        if not tally.note(outcome, what):
            tally.fault("wrong", f"{what}: it could not be gone on with: {outcome.err[-150:]}")
            return
    different = [name for name in COMPARED if _bytes(run / name) != _bytes(good / name)]
    left = [path.name for path in run.iterdir() if path.name.endswith(".part")]
    if len(_lines(run)) != len(_lines(good)):
        different.append("history.csv")
    tally.answer(not different, f"{what}: {', '.join(different)} differ")
    if len(left) > MOST:
        tally.fault("wrong", f"{what}: temporary files stay: {left}")
    shutil.rmtree(run)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _lines(run: Path) -> list[str]:
    return (run / "history.csv").read_text().splitlines()


def scoring(setting: Setting) -> Tally:
    """`squid score --out`, killed; what was there before stays whole, and a second call ends it."""
    tally = Tally("scoring: killed")
    folder = _many(setting, 400)
    good = setting.folder / "good.csv"
    began = squid("score", setting.run, folder, "--out", good)
    if began.code != 0:
        raise RuntimeError(f"The scoring does not run: {began.err}")
    before = "what was here before\n"
    for number in range(setting.times(60)):
        rng = setting.random(f"scoring/{number}")
        out = setting.folder / f"scores-{number}.csv"
        out.write_text(before)
        sent = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        words = ("score", setting.run, folder, "--out", out)
        outcome = squid(*words, kill_after=rng.uniform(0, 1.1) * began.seconds, sent=sent)
        what = f"scoring {number}, {sent.name}"
        if outcome.killed and out.read_text() not in (before, good.read_text()):
            tally.fault("wrong", f"{what}: neither the old file nor the new one is whole")
        if tally.note(squid(*words), what):
            tally.answer(out.read_bytes() == good.read_bytes(), f"{what}: other rows after it")
        for path in setting.folder.glob(f"*scores-{number}.csv*"):
            path.unlink()
    return tally


def _many(setting: Setting, count: int) -> Path:
    """A folder of copies of the good images."""
    folder = setting.folder / "many"
    folder.mkdir()
    good = sorted(setting.images.iterdir())
    for number in range(count):
        shutil.copy(good[number % len(good)], folder / f"{number:05}.png")
    return folder
