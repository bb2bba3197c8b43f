"""The calibration: held-out healthy scores, and what a new score means beside them."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, FiniteFloat, field_validator

from squid.calibration.drift import Drift, measure_drift
from squid.calibration.false_discovery import smallest_flagged
from squid.calibration.operating_point import (
    OperatingPoint,
    check_confidence,
    check_rate,
    needed,
    rank_for,
    true_rates,
)
from squid.config import Config
from squid.errors import ConfigError, DataError

Array = NDArray[np.float64]
Share = Annotated[float, Field(gt=0, lt=1)]

RATES = (0.01, 0.05, 0.1, 0.2)
"""False-positive rates that tables show; every other one has a threshold as well."""
RATE = 0.1
"""The default false-positive rate, at which images are flagged."""


class CalibrationNote(UserWarning):
    """The held-out images are too few for the rate that was asked for."""


class Calibration(Config):
    """Mean and spread of the training scores, and the scores of held-out healthy images.

    A p-value and a threshold need no more than the rank of a score among those held out. They hold
    for a new healthy image that is exchangeable with the held-out ones, whatever the distribution
    of the scores, and not for images of another hospital or machine.
    """

    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(ge=0)]
    """Population standard deviation."""
    count: Annotated[int, Field(ge=0)]
    """Training images behind mean and std."""
    heldout_scores: tuple[FiniteFloat, ...]
    """Scores of the held-out healthy images, ascending."""
    heldout_facts: Mapping[str, tuple[FiniteFloat, ...]] = {}
    """Exposure and sharpness of the held-out images, each ascending (`facts.py`)."""
    rate: Share | None = None
    """The false-positive rate it was made for; the recipe's when left out."""
    confidence: Share | None = None
    """The share of held-out sets for which the threshold keeps the rate; on average over them when
    left out."""
    source: str = "held-out healthy images"
    """Where the held-out images came from."""

    @field_validator("heldout_scores")
    @classmethod
    def _are_ascending(cls, scores: tuple[float, ...]) -> tuple[float, ...]:
        if any(np.diff(scores) < 0):
            raise ValueError("held-out scores are not in ascending order.")
        return scores

    def __repr__(self) -> str:
        return f"Calibration({self.heldout} {self.source}, {self.count} training images)"

    @property
    def heldout(self) -> int:
        """The number of held-out images."""
        return len(self.heldout_scores)

    def standardised(self, scores: ArrayLike) -> Array:
        """The paper's standardised score: sigmoid of the distance from the normals' mean in stds.

        It is a scale from 0 to 1 with the average normal at 0.5, not a chance of disease.
        """
        # An infinite distance, of training scores that hardly differ, gives 0 or 1 as it should.
        with np.errstate(over="ignore"):
            distance = (np.asarray(scores, dtype=np.float64) - self.mean) / (self.std or 1.0)
        # The logarithm of the sigmoid first: exp(-distance) itself overflows for low scores.
        return np.asarray(np.exp(-np.logaddexp(0.0, -distance)))

    def p_value(self, scores: ArrayLike) -> Array:
        """(1 + held-out scores that are at least as high) / (heldout + 1).

        For a new healthy image it is at most p with a chance of at most p. It is at least
        1 / (heldout + 1).
        """
        self._refuse_empty()
        values = np.asarray(scores, dtype=np.float64)
        higher = self.heldout - np.searchsorted(self.heldout_scores, values, side="left")
        return np.asarray((1 + higher) / (self.heldout + 1))

    def rarity(self, scores: ArrayLike) -> list[str]:
        """(n,) p-values in words: 1 in 20 healthy images scores so high.

        Where none of those held out does, the smallest p-value is no estimate of their share: it is
        smaller than so many images can show.
        """
        values = np.asarray(scores, dtype=np.float64)
        rarest = f"fewer than 1 in {self.heldout}"
        return [
            rarest if value > self.heldout_scores[-1] else _one_in(float(p))
            for value, p in zip(values, self.p_value(values), strict=True)
        ]

    def operating_point(
        self, rate: float | None = None, confidence: float | None = None
    ) -> OperatingPoint:
        """The threshold for a false-positive rate, on average or with a confidence, with the
        interval of its true rate."""
        if rate is None:
            rate = self.rate or RATE
        check_rate(rate)
        check_confidence(confidence)
        self._refuse_empty()
        rank = min(rank_for(self.heldout, rate, confidence), self.heldout)
        low, high = true_rates(self.heldout, rank)
        return OperatingPoint(
            # The next larger number, so that the held-out score itself is not flagged.
            threshold=float(np.nextafter(self.heldout_scores[rank - 1], np.inf)),
            rate=rate,
            low=low,
            high=high,
            kind="on average" if confidence is None else "with confidence",
            confidence=confidence,
            heldout=self.heldout,
            needed=needed(rate, confidence),
        )

    def threshold(self, rate: float = RATE) -> float:
        """The threshold that keeps a false-positive rate on average."""
        return self.operating_point(rate).threshold

    def flagged(self, scores: ArrayLike, rate: float = RATE) -> NDArray[np.bool_]:
        """(n,) which scores reach that threshold."""
        return np.asarray(np.asarray(scores, dtype=np.float64) >= self.threshold(rate))

    def false_discovery_threshold(self, scores: ArrayLike, share: float) -> float:
        """The threshold for the images of one worklist, (n,) scores, of which at most `share` of
        those flagged are expected to be healthy (Benjamini-Hochberg); infinite where none is
        flagged."""
        values = np.asarray(scores, dtype=np.float64)
        return smallest_flagged(values, self.p_value(values), share)

    def drift(self, scores: ArrayLike, facts: Mapping[str, ArrayLike] | None = None) -> Drift:
        """Whether healthy scores, and facts of their images, differ from those held out."""
        self._refuse_empty()
        return measure_drift(
            np.asarray(self.heldout_scores),
            _finite(scores, "new"),
            {
                name: (np.asarray(self.heldout_facts[name]), _finite(values, "new"))
                for name, values in (facts or {}).items()
                if name in self.heldout_facts
            },
        )

    def _refuse_empty(self) -> None:
        if not self.heldout_scores:
            raise ConfigError(
                "This detector has no held-out healthy scores; measure some with squid calibrate."
            )


UNCALIBRATED = Calibration(mean=0.0, std=1.0, count=0, heldout_scores=())
"""What a detector has before it is calibrated."""


def calibrate(
    train_scores: ArrayLike,
    heldout_scores: ArrayLike,
    *,
    facts: Mapping[str, ArrayLike] | None = None,
    rate: float | None = None,
    confidence: float | None = None,
    source: str = "held-out healthy images",
) -> Calibration:
    """A calibration from the scores of healthy images; those held out must not be trained on."""
    train = _finite(train_scores, "training")
    return Calibration(
        mean=float(train.mean()),
        std=float(train.std()),
        count=len(train),
        heldout_scores=_ascending(heldout_scores),
        heldout_facts={name: _ascending(values) for name, values in (facts or {}).items()},
        rate=rate,
        confidence=confidence,
        source=source,
    )


def _ascending(values: ArrayLike) -> tuple[float, ...]:
    return tuple(np.sort(_finite(values, "held-out")).tolist())


def _finite(scores: ArrayLike, name: str) -> Array:
    # One infinite score would make the mean, and with it every standardised score, useless.
    values = np.asarray(scores, dtype=np.float64).ravel()
    if not len(values):
        raise DataError(f"Calibration needs at least one {name} score of a healthy image.")
    if strange := int((~np.isfinite(values)).sum()):
        raise DataError(f"{strange} of {len(values)} {name} scores are not finite.")
    return values


def _one_in(p_value: float) -> str:
    count = 1 / p_value
    return f"1 in {count:.0f}" if count >= 10 else f"1 in {count:.1f}".removesuffix(".0")
