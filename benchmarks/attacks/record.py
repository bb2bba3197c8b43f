"""What an attack counts, and where it works."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from attacks.process import Outcome

T = TypeVar("T")

HANG = 5.0
"""Seconds, as `Outcome.seconds` counts them, from which on one call counts as a hang: in all, or
beyond those that a call takes which is not attacked, where that draws 45 figures or the like."""
PARTIAL = 3
"""Exit code of a result that leaves out files which cannot be read."""
SHOWN = 10
"""Failures kept as evidence for each attack."""


@dataclass
class Tally:
    """What came of one kind of attack."""

    name: str
    tried: int = 0
    """Inputs, or processes that were killed where that is the attack."""
    refused: int = 0
    """Inputs that ended in one sentence and an exit code that is not 0."""
    answered: int = 0
    """Inputs that ended in a result."""
    wrong: int = 0
    """Results that differ from the right one, refusals without a sentence, files that were lost."""
    tracebacks: int = 0
    hangs: int = 0
    slowest: float = 0.0
    """Seconds of the slowest call, beyond those of a call that is not attacked where that is
    compared."""
    peak_mib: int = 0
    """Highest resident memory of a process, with Python and torch in it."""
    evidence: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return self.wrong + self.tracebacks + self.hangs

    def answer(self, right: bool, what: str) -> None:
        """A result, and whether it is the right one."""
        self.answered += 1
        if not right:
            self.fault("wrong", what)

    def fault(self, kind: str, what: str) -> None:
        """One more of `wrong`, `tracebacks` or `hangs`."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.evidence) < SHOWN:
            self.evidence.append(f"{kind}: {what}")

    def note(self, outcome: Outcome, what: str, *, inputs: int = 1, sound: float = 0.0) -> bool:
        """Count what every call must do: end in time, without a traceback, and give a reason where
        it refuses. Whether it came to a result, which the caller then checks.

        `sound`: seconds of a call like this that is not attacked, where they are many.
        """
        self.tried += inputs
        seconds = max(0.0, outcome.seconds - sound)
        self.slowest = max(self.slowest, seconds)
        self.peak_mib = max(self.peak_mib, outcome.peak_mib)
        if outcome.timed_out or seconds > HANG:
            self.fault("hangs", f"{what}: {seconds:.1f} s")
            return False
        if "Traceback (most recent call last)" in outcome.out + outcome.err or (
            outcome.code < 0 and not outcome.killed
        ):
            last = (outcome.err.strip().splitlines() or [f"signal {-outcome.code}"])[-1]
            self.fault("tracebacks", f"{what}: {last[:200]}")
            return False
        if outcome.killed:
            return False
        if outcome.code not in (0, PARTIAL):
            self.refused += 1
            if not outcome.err.strip():
                self.fault("wrong", f"{what}: exit code {outcome.code} without a sentence")
            return False
        return True


@dataclass(frozen=True)
class Setting:
    """Where an attack works, how often it tries, and with which random numbers."""

    folder: Path
    """An empty folder of its own."""
    run: Path
    """A trained run folder, not to be changed."""
    recipe: Path
    """The recipe of that run, which trains in a second."""
    images: Path
    """Six healthy images, not to be changed."""
    seed: int
    share: float
    """Share of the full number of tries."""

    def times(self, full: int) -> int:
        return max(2, round(full * self.share))

    def some(self, named: Mapping[str, T]) -> dict[str, T]:
        """All of them, or as many as the share asks for."""
        if self.share >= 1:
            return dict(named)
        chosen = self.random("some").sample(sorted(named), min(len(named), self.times(len(named))))
        return {name: named[name] for name in chosen}

    def random(self, name: str) -> random.Random:
        """Random numbers that depend on the seed and the attack only."""
        return random.Random(f"{self.seed}/{name}")


Attack = Callable[[Setting], Tally]
