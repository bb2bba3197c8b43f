"""Trainings and scorings that are killed at a random moment, gone on with, and compared with one
that was left alone."""

import shutil
import signal
from pathlib import Path

from attacks.process import Outcome, must, squid
from attacks.record import Setting, Tally

COMPARED = ("model.safetensors", "training.safetensors", "calibration.json", "snapshots.npz")
"""Files of a run folder that must be the same to the byte; they hold no times."""
OFTEN = ("--set", "train.save_minutes=0.0001")
"""A state after every step."""
MOST = 6
"""Kills of one training."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
BEFORE = "what was here before\n"


def training(setting: Setting) -> Tally:
    """`squid train`, killed, then `--resume`, killed again, until it ends."""
    tally = Tally("training: killed and gone on with")
    good = setting.folder / "good"
    whole = must("train", setting.recipe, "--out", good, "--device", "cpu", *OFTEN)
    kills, number = setting.times(60), 0
    while tally.tried < kills:
        rng = setting.random(f"kills/{number}")
        run = setting.folder / f"killed-{number}"
        for _ in range(MOST):
            moment = rng.uniform(0.02, 1.0) * whole.seconds
            outcome = _go_on(setting, run, kill_after=moment, sent=rng.choice(SIGNALS))
            if not outcome.killed:
                break
            tally.note(outcome, f"training {number}, killed")
        else:
            outcome = _go_on(setting, run)
        _end(tally, outcome, run, good, f"training {number}")
        number += 1
    return tally


def interrupted(setting: Setting, run: Path) -> Path:
    """A training that was killed after its first states, to be gone on with."""
    for moment in range(10, 200, 5):
        outcome = _go_on(setting, run, kill_after=moment / 100)
        if outcome.killed and (run / "resume.pt").exists():
            return run
        shutil.rmtree(run, ignore_errors=True)
    raise RuntimeError("No training could be killed between its first state and its end.")


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
    if not tally.note(outcome, what, inputs=0) and not finished:
        tally.fault("wrong", f"{what}: it could not be gone on with: {outcome.err[-150:]}")
        return
    different = [name for name in COMPARED if _bytes(run / name) != _bytes(good / name)]
    left = [path.name for path in run.iterdir() if path.name.endswith(".part")]
    if len(_lines(run)) != len(_lines(good)):
        different.append("history.csv")
    tally.answer(not different, f"{what}: {', '.join(different)} differ")
    if left and not finished:  # the last call has removed what those before it left
        tally.fault("wrong", f"{what}: temporary files stay: {left}")
    shutil.rmtree(run)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _lines(run: Path) -> list[str]:
    return (run / "history.csv").read_text().splitlines()


def scoring(setting: Setting) -> Tally:
    """`squid score --out`, killed up to three times; what was there before stays whole, and the
    same command ends it."""
    tally = Tally("scoring: killed and gone on with")
    folder = _many(setting, 400)
    good = setting.folder / "good.csv"
    whole = must("score", setting.run, folder, "--out", good)
    kills, number = setting.times(60), 0
    while tally.tried < kills:
        rng = setting.random(f"scoring/{number}")
        out = setting.folder / f"scores-{number}.csv"
        out.write_text(BEFORE)
        words = ("score", setting.run, folder, "--out", out)
        for _ in range(rng.randint(1, 3)):
            moment = rng.uniform(0.05, 1.0) * whole.seconds
            outcome = squid(*words, kill_after=moment, sent=rng.choice(SIGNALS))
            tally.note(outcome, f"scoring {number}", inputs=int(outcome.killed))
            if out.read_text() not in (BEFORE, good.read_text()):
                tally.fault("wrong", f"scoring {number}: neither the old file nor the new one")
        if tally.note(squid(*words), f"scoring {number}", inputs=0):
            right = out.read_bytes() == good.read_bytes()
            tally.answer(right, f"scoring {number}: other rows after it")
        for path in setting.folder.glob(f"*scores-{number}.csv*"):
            path.unlink()
        number += 1
    return tally


def _many(setting: Setting, count: int) -> Path:
    """A folder of copies of the good images."""
    folder = setting.folder / "many"
    folder.mkdir()
    good = sorted(setting.images.iterdir())
    for number in range(count):
        shutil.copy(good[number % len(good)], folder / f"{number:05}.png")
    return folder
