"""A threshold for a false-positive rate, and where the true rate lies.

All of it is exact for any distribution of scores. A threshold just above the k-th smallest of n
held-out scores flags a share of new healthy images that follows Beta(n + 1 - k, k) over held-out
sets, if the new images are exchangeable with those held out.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betaincc, betaincinv

from squid.errors import ConfigError

Kind = Literal["on average", "with confidence"]

LEVEL = 0.9
"""Share of held-out sets whose true rate lies between `low` and `high`."""


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold with the false-positive rates it may have."""

    threshold: float
    """Images are flagged from this score on."""
    rate: float
    """The rate that was asked for."""
    low: float
    high: float
    """5 and 95 % quantiles of the true rate over held-out sets."""
    kind: Kind
    """Whether the rate holds on average over held-out sets, or for the share `confidence` of
    them."""
    confidence: float | None
    heldout: int
    """Held-out images that set the threshold."""
    needed: int
    """The fewest held-out images that support the rate."""

    @property
    def enough(self) -> bool:
        """Whether the held-out images support the rate; if not, the threshold is the highest one
        they can set."""
        return self.heldout >= self.needed

    @property
    def target(self) -> str:
        """What was asked for, in words."""
        asked = f"{percent(self.rate)} of healthy images "
        if self.confidence is None:
            return asked + "on average"
        return f"{asked}with {percent(self.confidence)} confidence"

    @property
    def meaning(self) -> str:
        """What the threshold is, in words that hold for any number of held-out images."""
        if self.enough:
            kept = f"flags {self.target}; with {self.heldout} held-out images"
        else:
            kept = (
                f"highest of {self.heldout} held-out scores, too few to flag {self.target} (it "
                f"takes {self.needed});"
            )
        return f"{kept} the true rate lies {self.range}"

    @property
    def range(self) -> str:
        """Where the true rate lies, in words."""
        return f"between {percent(self.low)} and {percent(self.high)}"

    @property
    def note(self) -> str:
        """What a user must know where the images are too few, else ''."""
        if self.enough:
            return ""
        return (
            f"{self.heldout} held-out healthy images cannot support a threshold that flags "
            f"{self.target}: it takes {self.needed}. It is their highest score; the true rate "
            f"lies {self.range}."
        )


def percent(share: float) -> str:
    """0.05 -> 5 %, with three digits at most."""
    return f"{100 * share:.3g} %"


def rank_for(n: int, rate: float, confidence: float | None = None) -> int:
    """The smallest k for which a threshold just above the k-th smallest of n held-out scores keeps
    the rate; n + 1 where none does."""
    if confidence is None:
        # Rounding may put the product just above a whole number: 20 * 0.95 must not become 20.
        return math.ceil((n + 1) * (1 - rate) - 1e-9)
    ranks = np.arange(1, n + 1)
    # The chance that the true rate exceeds the one asked for falls with the rank.
    exceeds = betaincc(n + 1 - ranks, ranks, rate)
    return int(np.count_nonzero(exceeds > 1 - confidence)) + 1


def needed(rate: float, confidence: float | None = None) -> int:
    """The fewest held-out images for which some threshold keeps the rate."""
    if confidence is None:
        return math.ceil(1 / rate - 1 - 1e-9)
    # The highest of n scores keeps it with a chance of 1 - (1 - rate)^n.
    return math.ceil(math.log(1 - confidence) / math.log1p(-rate) - 1e-9)


def true_rates(n: int, rank: int) -> tuple[float, float]:
    """The interval of the true rate of a threshold just above the rank-th of n scores."""
    tail = (1 - LEVEL) / 2
    low, high = (float(betaincinv(n + 1 - rank, rank, share)) for share in (tail, 1 - tail))
    return low, high


def check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ConfigError(f"A false-positive rate lies between 0 and 1, not at {rate:g}.")


def check_confidence(confidence: float | None) -> None:
    if confidence is not None and not 0 < confidence < 1:
        raise ConfigError(f"A confidence lies between 0 and 1, not at {confidence:g}.")
