"""Which images of a worklist to flag, by the share of healthy ones among those flagged.

Benjamini and Hochberg's procedure on conformal p-values, which is valid because those depend on
each other positively (Bates et al., Annals of Statistics 2023).
"""

import math

import numpy as np
from numpy.typing import NDArray

from squid.errors import ConfigError

Array = NDArray[np.float64]


def benjamini_hochberg(p_values: Array, share: float) -> NDArray[np.bool_]:
    """(n,) which images are flagged, so that at most `share` of those are expected to be
    healthy."""
    if not 0 < share < 1:
        raise ConfigError(f"A false-discovery rate lies between 0 and 1, not at {share:g}.")
    count = len(p_values)
    ascending = np.sort(p_values)
    # The largest p-value below the line share * rank / count; all up to it are flagged.
    below = np.flatnonzero(ascending <= share * np.arange(1, count + 1) / count)
    return np.asarray(p_values <= (ascending[below[-1]] if len(below) else -1.0))


def smallest_flagged(scores: Array, p_values: Array, share: float) -> float:
    """The lowest score that is flagged: equal p-values are flagged together, so one threshold says
    the same as the procedure."""
    flagged = benjamini_hochberg(p_values, share)
    return float(scores[flagged].min()) if flagged.any() else math.inf


def ties_needed(heldout: int, count: int, share: float) -> int:
    """How many of `count` images must have the smallest possible p-value, 1 / (heldout + 1), before
    any of them can be flagged."""
    return max(1, math.ceil(count / (share * (heldout + 1)) - 1e-9))
