"""The meaning of scores, measured on healthy images only, the same way for every method."""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, FiniteFloat

from squid.config import Config
from squid.errors import ConfigError, DataError

RATES = (0.01, 0.05, 0.1, 0.2)
RATE = 0.1
"""The default false-positive rate, at which images are flagged."""


class Calibration(Config):
    """Mean and spread of the training scores, and thresholds from held-out healthy images.

    A threshold is conformal: just above the ceil((n + 1)(1 - rate))-th smallest of n held-out
    scores. A new healthy image, exchangeable with those, is then flagged with a chance of at most
    `rate`, whatever the distribution of the scores. That holds on average over held-out sets, not
    for each of them, and not for images of another hospital or machine.
    """

    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(ge=0)]
    """Population standard deviation."""
    count: Annotated[int, Field(ge=0)]
    """Training images behind mean and std."""
    thresholds: dict[Annotated[float, Field(gt=0, lt=1)], FiniteFloat]
    """Images are flagged from this score on, by target false-positive rate."""
    heldout: Annotated[int, Field(ge=0)]
    """Held-out healthy images behind the thresholds."""
    source: str = "held-out healthy images"
    """Where the held-out images came from."""

    def standardised(self, scores: ArrayLike) -> NDArray[np.float64]:
        """The paper's standardised score: sigmoid of the distance from the normals' mean in stds.

        It is a scale from 0 to 1 with the average normal at 0.5, not a chance of disease.
        """
        distance = (np.asarray(scores, dtype=np.float64) - self.mean) / (self.std or 1.0)
        # The logarithm of the sigmoid first: exp(-distance) itself overflows for low scores.
        return np.asarray(np.exp(-np.logaddexp(0.0, -distance)))

    def threshold(self, rate: float = RATE) -> float:
        """The threshold measured for a target false-positive rate."""
        # Not by key: a rate that was computed may differ from 0.1 in its last digit.
        for known, value in self.thresholds.items():
            if math.isclose(known, rate):
                return value
        rates = ", ".join(f"{known:g}" for known in sorted(self.thresholds))
        raise ConfigError(
            f"No threshold was measured for a false-positive rate of {rate:g}; known: {rates}."
        )

    def guaranteed(self, rate: float = RATE) -> bool:
        """Whether there were enough held-out images for the rate: at least 1 / rate - 1.

        With fewer, the threshold lies just above the highest held-out score.
        """
        return _rank(self.heldout, rate) <= self.heldout

    def flagged(self, scores: ArrayLike, rate: float = RATE) -> NDArray[np.bool_]:
        """(n,) which scores reach the threshold of a target false-positive rate."""
        return np.asarray(np.asarray(scores, dtype=np.float64) >= self.threshold(rate))


def calibrate(
    train_scores: ArrayLike,
    heldout_scores: ArrayLike,
    rates: Sequence[float] = RATES,
    *,
    source: str = "held-out healthy images",
) -> Calibration:
    """A calibration from the scores of healthy images; those held out must not be trained on."""
    train = _finite(train_scores, "training")
    heldout = np.sort(_finite(heldout_scores, "held-out"))
    return Calibration(
        mean=float(train.mean()),
        std=float(train.std()),
        count=len(train),
        thresholds={rate: _conformal(heldout, rate) for rate in rates},
        heldout=len(heldout),
        source=source,
    )


def _conformal(ascending: NDArray[np.float64], rate: float) -> float:
    if not 0 < rate < 1:
        raise ConfigError(f"A false-positive rate lies between 0 and 1, not at {rate:g}.")
    rank = min(_rank(len(ascending), rate), len(ascending))
    # The next larger number, so that the held-out score itself, or one equal to it, is not flagged.
    return float(np.nextafter(ascending[rank - 1], np.inf))


def _rank(n: int, rate: float) -> int:
    # Rounding may put the product just above a whole number: 20 * 0.95 must not become 20.
    return math.ceil((n + 1) * (1 - rate) - 1e-9)


def _finite(scores: ArrayLike, name: str) -> NDArray[np.float64]:
    # One infinite score would make the mean, and with it every standardised score, useless.
    values = np.asarray(scores, dtype=np.float64).ravel()
    if not len(values):
        raise DataError(f"Calibration needs at least one {name} score of a healthy image.")
    if strange := int((~np.isfinite(values)).sum()):
        raise DataError(f"{strange} of {len(values)} {name} scores are not finite.")
    return values
