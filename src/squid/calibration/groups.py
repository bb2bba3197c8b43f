"""False-positive rates by view, machine or age: one threshold may not serve all alike.

The images that set a threshold are flagged less often than its rate says, the more so the higher
its confidence. Each image is therefore flagged by the threshold that all others set, and each group
is compared with the other images, not with the rate.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from squid.calibration.operating_point import rank_for

LEVEL = 0.95
ALPHA = 0.05
"""Chance that any group is named where all have the same rate."""


@dataclass(frozen=True)
class GroupRate:
    """Flagged healthy images of one group."""

    name: str
    count: int
    flagged: int
    low: float
    high: float
    """95 % Clopper-Pearson interval of the group's rate."""
    p_value: float
    """Binomial test of the target rate, corrected for the number of groups (Holm)."""

    @property
    def share(self) -> float:
        return self.flagged / self.count

    @property
    def differs(self) -> bool:
        return self.p_value < ALPHA


def flagged_by_others(
    scores: NDArray[np.float64], rate: float, confidence: float | None = None
) -> NDArray[np.bool_]:
    """(n,) which images reach the threshold that all others set, as a new image would have to."""
    others = len(scores) - 1
    rank = max(1, min(rank_for(others, rate, confidence), others))
    # Without an image above the rank-th smallest score, that score sets the threshold and is
    # exceeded; without one of the rank lowest, the next score does, and is not.
    return np.asarray(scores > np.sort(scores)[rank - 1])


def group_rates(groups: Sequence[str], flagged: NDArray[np.bool_]) -> list[GroupRate]:
    """The share of healthy images that is flagged in each group, (n,) names and answers."""
    from scipy.stats import fisher_exact

    answers: dict[str, list[bool]] = defaultdict(list)
    for name, answer in zip(groups, flagged.tolist(), strict=True):
        answers[name].append(answer)
    counts = {name: (sum(found), len(found)) for name, found in sorted(answers.items())}
    images, all_flagged = len(flagged), int(flagged.sum())
    p_values = [
        fisher_exact([[k, n - k], [all_flagged - k, images - n - all_flagged + k]]).pvalue
        for k, n in counts.values()
    ]
    return [
        GroupRate(name, n, k, *clopper_pearson(k, n), p)
        for (name, (k, n)), p in zip(counts.items(), holm(p_values), strict=True)
    ]


def clopper_pearson(found: int, count: int) -> tuple[float, float]:
    """The exact 95 % interval of a share."""
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(found, count - found + 1, tail)) if found else 0.0
    high = float(betaincinv(found + 1, count - found, 1 - tail)) if found < count else 1.0
    return low, high


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, corrected so that the chance of any false finding is kept."""
    values, count = np.asarray(p_values, dtype=np.float64), len(p_values)
    order = np.argsort(values)
    # The smallest is multiplied by the number of tests, the next by one less, and so on.
    scaled = np.minimum(values[order] * (count - np.arange(count)), 1.0)
    corrected = np.empty(count)
    corrected[order] = np.maximum.accumulate(scaled)
    return [float(value) for value in corrected]
