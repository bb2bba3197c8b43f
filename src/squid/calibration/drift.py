"""Whether scores at a site differ from those held out, and how small a shift would go unseen."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALPHA = 0.01
"""Chance of a difference found between exchangeable images."""
POWER = 0.8
"""Chance with which the smallest visible shift is found."""


@dataclass(frozen=True)
class Drift:
    """Two tests of scores, the same of image facts, and what they can see."""

    p_value: float
    """Two-sided Mann-Whitney test, which decides."""
    ks_p_value: float
    """Kolmogorov-Smirnov test, which sees other differences than a shift."""
    shift: float
    """Difference of the medians in standard deviations of the held-out scores."""
    smallest_shift: float
    """The smallest shift, in the same unit, that is found with a chance of 80 %."""
    facts: Mapping[str, float]
    """p-values of the Mann-Whitney test for exposure and sharpness of the images."""
    heldout: int
    new: int

    @property
    def found(self) -> bool:
        return self.p_value < ALPHA

    @property
    def differing_facts(self) -> list[str]:
        """Facts that differ, at a level divided by their number (Bonferroni)."""
        return [name for name, p in self.facts.items() if p < ALPHA / len(self.facts)]


def measure_drift(heldout: Array, new: Array, facts: Mapping[str, tuple[Array, Array]]) -> Drift:
    """New scores (m,) against held-out ones (n,); facts of the held-out and the new images."""
    from scipy.stats import ks_2samp

    spread = float(heldout.std()) or 1.0
    return Drift(
        p_value=_mann_whitney(heldout, new),
        ks_p_value=float(ks_2samp(heldout, new).pvalue),
        shift=float(np.median(new) - np.median(heldout)) / spread,
        smallest_shift=smallest_shift(len(heldout), len(new)),
        facts={name: _mann_whitney(*both) for name, both in facts.items()},
        heldout=len(heldout),
        new=len(new),
    )


def smallest_shift(n: int, m: int) -> float:
    """In standard deviations, for scores that are about normally distributed.

    There the Mann-Whitney test needs pi / 3 times the images of the t test.
    """
    from scipy.special import ndtri

    distance = ndtri(1 - ALPHA / 2) + ndtri(POWER)
    return float(distance * math.sqrt(math.pi / 3 * (1 / n + 1 / m)))


def _mann_whitney(first: Array, second: Array) -> float:
    from scipy.stats import mannwhitneyu

    # The normal approximation has no variance where all values are equal.
    if np.ptp(np.concatenate([first, second])) == 0:
        return 1.0
    return float(mannwhitneyu(first, second, method="asymptotic").pvalue)
