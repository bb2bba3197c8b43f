"""What a score follows besides disease: AUC within strata, an adjusted AUC, and rank correlations
with scores that only see how an image was taken.

A pooled AUC can come from a covariate that differs between the classes (the view, how sharp images
are). Within a stratum of that covariate it cannot.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from squid.config import Config
from squid.data.groups import UNKNOWN
from squid.data.image_set import ImageSet, Splits
from squid.data.nih import RSNA_CLASS
from squid.evaluation.metrics import Estimate, estimate, resampled_auc
from squid.evaluation.percent import percent, percent_range
from squid.evaluation.trivial import acquisition_scores, image_sharpness

Array = NDArray[np.float64]
T = TypeVar("T")

LEAST = 10
"""Images of each class that a stratum needs."""
DECILES = 10
AGE_BANDS = (18, 40, 60, 80)
MOST_VALUES = 20
"""Different values of a column up to which each is a stratum of its own. Those of a column of
numbers with more are put into fifths; more texts are names of something."""
STRONG = 0.3
"""Rank correlation among healthy images from which on a score is said to follow a covariate."""


class Stratum(Config):
    """The images with one value of a covariate."""

    name: str
    normal: int
    anomalous: int
    auc: Estimate | None
    """None where a class has too few images."""


class Covariate(Config):
    """How well scores detect where the covariate cannot help."""

    strata: tuple[Stratum, ...]
    adjusted: Estimate | None
    """The mean of the AUCs within strata, weighted by their anomalous images (Janes & Pepe 2009);
    None where no stratum has enough images of both classes."""

    @property
    def anomalous(self) -> tuple[int, int]:
        """Anomalous images in the strata that count, and all of them. Those of the other strata
        have too few healthy images like them to be compared with."""
        counted = sum(one.anomalous for one in self.strata if one.auc is not None)
        return counted, sum(one.anomalous for one in self.strata)


class Correlation(Config):
    """Rank correlation of a score with one that only sees how an image was taken."""

    healthy: float
    """Among normal test images, where disease has no part."""
    all: float


class Confounds(Config):
    """What a score follows besides disease."""

    covariates: Mapping[str, Covariate]
    """By name: `sharpness` in deciles, and what the dataset knows (view, sex, age, machine ...)."""
    correlations: Mapping[str, Correlation]
    """With each acquisition score."""


def confounds(scores: Array, splits: Splits, *, seed: int = 0, resamples: int = 1000) -> Confounds:
    """All of it for the scores (n,) of the test images."""
    images, known = splits.test, acquisition_scores(splits)
    covariates = {
        name: covariate(scores, images.labels, group, seed=seed, resamples=resamples)
        for name, group in strata(images).items()
    }
    # Among healthy images disease cannot be the reason of a correlation.
    healthy = images.labels == 0
    correlations = {
        name: Correlation(
            healthy=_rank_correlation(scores[healthy], values[healthy]),
            all=_rank_correlation(scores, values),
        )
        for name, values in known.items()
    }
    return Confounds(covariates=covariates, correlations=correlations)


def strata(images: ImageSet) -> dict[str, tuple[str, ...]]:
    """The stratum of each image, by covariate: sharpness is known of every image, the others where
    the dataset has a column with several values."""
    groups = {"sharpness": deciles(image_sharpness(images)), **_columns(images)}
    return {name: tuple(group) for name, group in groups.items() if len(set(group)) > 1}


def leading(by_covariate: Mapping[str, T]) -> T | None:
    """What belongs to the covariate that tables adjust for: the view, or else sharpness."""
    return by_covariate.get("view", by_covariate.get("sharpness"))


def covariate(
    scores: Array,
    labels: NDArray[np.int64],
    groups: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = 1000,
) -> Covariate:
    """AUC within each group, and their mean weighted by anomalous images. Resamples keep the number
    of images of each class in each stratum."""
    of = np.array(groups)
    strata, values, samples, weights = [], [], [], []
    for place, name in enumerate(sorted(set(groups))):
        inside = of == name
        anomalous = int(labels[inside].sum())
        normal = int(inside.sum()) - anomalous
        auc = None
        # A small stratum is listed, but its AUC would be noise in the mean.
        if min(normal, anomalous) >= LEAST:
            # A seed of its own: resamples of different strata must be independent of each other.
            value, resampled = resampled_auc(
                scores[inside], labels[inside], seed=seed + place, resamples=resamples
            )
            auc = estimate(value, resampled)
            values.append(value)
            samples.append(resampled)
            weights.append(anomalous)
        strata.append(Stratum(name=name, normal=normal, anomalous=anomalous, auc=auc))
    adjusted = None
    if weights:
        # The n-th resamples of all strata give the n-th resample of the mean.
        mean = float(np.average(values, weights=weights))
        adjusted = estimate(mean, np.average(samples, axis=0, weights=weights))
    return Covariate(strata=tuple(strata), adjusted=adjusted)


def deciles(values: Array) -> list[str]:
    """Ten groups of equally many images by rank, `01` the lowest."""
    # Sorting twice gives ranks; the stable order splits equal values the same way in every run.
    rank = values.argsort(kind="stable").argsort(kind="stable")
    return [f"{1 + int(DECILES * one / len(values)):02d}" for one in rank]


def _columns(images: ImageSet) -> dict[str, list[str]]:
    """What the dataset knows of the taking of each image and of its patient, ages in bands."""
    found = {}
    for name, column in images.columns.items():
        values = [one or UNKNOWN for one in column]
        if name == "age":
            found[name] = [_age_band(one) for one in values]
        elif name == RSNA_CLASS:  # another reading of the disease: within it nothing is to be found
            continue
        elif len(set(values)) <= MOST_VALUES:
            found[name] = values
        elif all(map(_is_number, set(values) - {UNKNOWN})):
            found[name] = _fifths(values)
    return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _fifths(values: Sequence[str]) -> list[str]:
    """The fifth of each number among those that are known."""
    numbers = np.array([float(one) for one in values if one != UNKNOWN])
    ends = np.quantile(numbers, (0.2, 0.4, 0.6, 0.8))
    return [
        one if one == UNKNOWN else f"fifth {int(np.searchsorted(ends, float(one))) + 1}"
        for one in values
    ]


def _age_band(age: str) -> str:
    if not age.isdigit():
        return UNKNOWN
    start = max((one for one in (0, *AGE_BANDS) if one <= int(age)), default=0)
    return f"from {start:02d}"


def _rank_correlation(first: Array, second: Array) -> float:
    # A constant has no ranks, and SciPy would return NaN with a warning.
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)


def what_it_follows(found: Confounds, auc: float) -> str:
    """A paragraph for people: by how much the AUC falls within strata, and what the score follows
    among healthy images."""
    parts = []
    for name, one in found.covariates.items():
        if one.adjusted is not None:
            counted, all_ = one.anomalous
            # What has no healthy counterpart is left out, which can flatter or hurt.
            over = "" if counted == all_ else f"; {counted:,} of {all_:,} anomalous images"
            parts.append(
                f"within {name} {percent(one.adjusted.value)} "
                f"({percent_range(one.adjusted.low, one.adjusted.high)}{over})"
            )
    strong = {n: c.healthy for n, c in found.correlations.items() if abs(c.healthy) >= STRONG}
    # The strongest covariate first, whatever its sign.
    strong = dict(sorted(strong.items(), key=lambda item: -abs(item[1])))
    follows = ", ".join(f"{name} ({value:+.2f})" for name, value in strong.items())
    sentence = f"AUC {percent(auc)} over all test images"
    if parts:
        sentence += "; " + ", ".join(parts)
    if follows:
        return f"{sentence}. Among healthy images the score follows {follows}: rank correlations."
    weak = max((abs(c.healthy) for c in found.correlations.values()), default=0.0)
    return (
        f"{sentence}. Among healthy images it follows no acquisition score by more than {weak:.2f}."
    )
