"""How well scores tell anomalous images from normal ones, each figure with a bootstrap interval.

An image is flagged at `score >= threshold`. A threshold is of one of two kinds, which are never
mixed: `healthy` (measured beforehand on held-out healthy images) and `best_accuracy` (the paper's:
chosen on the evaluated set itself).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from squid.config import Config, ThresholdKind
from squid.errors import ConfigError, DataError

Array = NDArray[np.float64]

MEASURES = (
    "auc",
    "average_precision",
    "accuracy",
    "f1",
    "sensitivity",
    "specificity",
    "precision",
)
LEVEL = 0.95
"""Coverage of every interval."""
_BLOCK = 4_000_000  # cells of a table of resamples held at once


class Threshold(Config):
    """The score from which on an image is flagged, and how it was set."""

    kind: ThresholdKind
    value: float | None = None
    """Left out for `best_accuracy`, which finds it."""
    rate: float | None = None
    """The false-positive rate that a `healthy` value was measured for."""


BEST_ACCURACY = Threshold(kind="best_accuracy")


def healthy(value: float, rate: float = 0.10) -> Threshold:
    """A threshold measured on held-out healthy images for a target false-positive rate."""
    return Threshold(kind="healthy", value=value, rate=rate)


class Estimate(Config):
    """A measure with its percentile bootstrap interval."""

    value: float
    low: float
    high: float


class Metrics(Config):
    """All measures of one set of scores, in [0, 1], and how they were taken."""

    normal: int
    anomalous: int
    threshold: Threshold
    auc: Estimate
    average_precision: Estimate
    accuracy: Estimate
    f1: Estimate
    sensitivity: Estimate
    specificity: Estimate
    precision: Estimate
    """Zero where nothing was flagged."""
    level: float
    resamples: int
    seed: int


class GroupAuc(Config):
    """How well scores separate one group of anomalous images from all normal ones."""

    auc: Estimate
    count: int


def evaluate(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: Threshold,
    seed: int = 0,
    resamples: int = 1000,
) -> Metrics:
    """Every measure; intervals resample the images within each class and keep the threshold."""
    values, anomalous = _checked(scores, labels)
    value = _placed(threshold, values, anomalous)
    # Bins are the distinct scores, so a threshold flags whole bins, in every resample alike.
    bins = _Bins.of(values, anomalous)
    flagged = bins.edges >= value
    estimates = _estimates(bins, flagged, seed=seed, resamples=resamples)
    return Metrics(
        normal=int((~anomalous).sum()),
        anomalous=int(anomalous.sum()),
        threshold=Threshold(kind=threshold.kind, value=value, rate=threshold.rate),
        **estimates,
        level=LEVEL,
        resamples=resamples,
        seed=seed,
    )


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Chance that an anomalous image scores above a normal one, ties counted half."""
    bins = _Bins.of(*_checked(scores, labels))
    return float(_auc(*bins.counts())[0])


def best_accuracy_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """The authors' choice: the first ROC threshold, from the highest down, with the best accuracy.

    It looks at the labels of the set it is used on, so the accuracy it gives is optimistic. Where
    flagging nothing is best, it is the next number above the highest score.
    """
    values, anomalous = _checked(scores, labels)
    false_alarms, found, thresholds = roc_curve(anomalous, values)
    # The number of images classified correctly at each threshold of the ROC curve.
    right = found * anomalous.sum() + (1 - false_alarms) * (~anomalous).sum()
    best = thresholds[np.argmax(np.rint(right))]  # counts of images: ties must be exact
    return float(min(best, np.nextafter(values.max(), np.inf)))


def per_group_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    groups: Sequence[str],
    *,
    minimum: int = 10,
    seed: int = 0,
    resamples: int = 1000,
) -> dict[str, GroupAuc]:
    """AUC of the anomalous images of each group against all normal ones.

    `groups` names each image's groups, '|'-joined as findings are. Groups of fewer than `minimum`
    anomalous images are left out.
    """
    values, anomalous = _checked(scores, labels)
    if len(groups) != len(values):
        raise DataError(f"{len(groups)} groups do not describe {len(values)} scores.")
    # An image with several findings is a member of several groups.
    named = [set(group.split("|")) for group in groups]
    result = {}
    for name in sorted(set().union(*named) - {""}):
        members = anomalous & np.array([name in names for names in named])
        if (count := int(members.sum())) >= max(minimum, 1):
            kept = members | ~anomalous
            bins = _Bins.of(values[kept], members[kept])
            # Only the AUC is kept, which does not depend on what is flagged.
            flagged = np.ones(bins.edges.shape, dtype=bool)
            estimate = _estimates(bins, flagged, seed=seed, resamples=resamples)["auc"]
            result[name] = GroupAuc(auc=estimate, count=count)
    return result


def resampled_auc(
    scores: ArrayLike, labels: ArrayLike, *, seed: int = 0, resamples: int = 1000
) -> tuple[float, Array]:
    """The AUC, and the same of each bootstrap resample (resamples,)."""
    bins = _Bins.of(*_checked(scores, labels))
    rng = np.random.default_rng(seed)
    samples = [_auc(*tables) for tables in bins.resampled(rng, resamples)]
    return float(_auc(*bins.counts())[0]), np.concatenate(samples)


def estimate(value: float, samples: Array) -> Estimate:
    """A measure with the interval of its bootstrap samples."""
    low, high = np.quantile(samples, (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    return Estimate(value=value, low=low, high=high)


class _Bins(NamedTuple):
    """Scores as indices into their distinct values: all that ranks and thresholds depend on."""

    edges: Array  # (u,) ascending
    normal: NDArray[np.intp]
    anomalous: NDArray[np.intp]

    @classmethod
    def of(cls, values: Array, anomalous: NDArray[np.bool_]) -> "_Bins":
        # Ranks and thresholds depend on the order of scores only.
        edges, index = np.unique(values, return_inverse=True)
        return cls(edges, index[~anomalous], index[anomalous])

    def counts(self) -> tuple[Array, Array]:
        """Normal and anomalous images per distinct score, (1, u) each."""
        return self._count(self.normal[None]), self._count(self.anomalous[None])

    def resampled(self, rng: np.random.Generator, total: int) -> Iterator[tuple[Array, Array]]:
        """The same, resampled with replacement within each class: (r, u) each, block by block."""
        # A table has a row per resample and a column per distinct score; blocks bound its memory.
        block = max(1, _BLOCK // len(self.edges))
        for start in range(0, total, block):
            rows = min(block, total - start)
            yield (
                self._count(_resampled(rng, self.normal, rows)),
                self._count(_resampled(rng, self.anomalous, rows)),
            )

    def _count(self, index: NDArray[np.intp]) -> Array:
        rows, width = len(index), len(self.edges)
        # Each row counts in a range of its own, so that one `bincount` serves all rows.
        flat = index + width * np.arange(rows)[:, None]
        counted = np.bincount(flat.ravel(), minlength=rows * width)
        return counted.reshape(rows, width).astype(np.float64)  # (r, u)


def _resampled(rng: np.random.Generator, index: NDArray[np.intp], rows: int) -> NDArray[np.intp]:
    return index[rng.integers(len(index), size=(rows, len(index)))]


def _estimates(
    bins: _Bins, flagged: NDArray[np.bool_], *, seed: int, resamples: int
) -> dict[str, Estimate]:
    values = _measures(*bins.counts(), flagged)
    blocks = [
        _measures(*tables, flagged)
        for tables in bins.resampled(np.random.default_rng(seed), resamples)
    ]
    samples = {name: np.concatenate([block[name] for block in blocks]) for name in MEASURES}
    # The percentile interval: what lies between the outer quantiles of the resamples.
    tails = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
    return {
        name: Estimate(value=values[name][0], low=low, high=high)
        for name in MEASURES
        for low, high in [np.quantile(samples[name], tails)]
    }


def _measures(normal: Array, anomalous: Array, flagged: NDArray[np.bool_]) -> dict[str, Array]:
    """All measures of each row of two tables of counts, (r, u) -> (r,) each."""
    negatives, positives = normal.sum(1), anomalous.sum(1)
    # Every count at the threshold follows from these four.
    false_alarms, found = normal[:, flagged].sum(1), anomalous[:, flagged].sum(1)
    return {
        "auc": _auc(normal, anomalous),
        "average_precision": _average_precision(normal, anomalous),
        "accuracy": (found + negatives - false_alarms) / (negatives + positives),
        "f1": 2 * found / (found + positives + false_alarms),
        "sensitivity": found / positives,
        "specificity": 1 - false_alarms / negatives,
        "precision": found / np.maximum(found + false_alarms, 1),
    }


def _auc(normal: Array, anomalous: Array) -> Array:
    below = np.cumsum(normal, axis=1) - normal / 2  # ties count half
    # Pairs in which the anomalous image scores higher, as a share of all pairs.
    pairs = np.einsum("ru,ru->r", anomalous, below)
    return np.asarray(pairs / (normal.sum(1) * anomalous.sum(1)))


def _average_precision(normal: Array, anomalous: Array) -> Array:
    # From the highest score down: each distinct score serves as a threshold once.
    found = np.cumsum(anomalous[:, ::-1], axis=1)
    flagged = found + np.cumsum(normal[:, ::-1], axis=1)
    precision = found / np.maximum(flagged, 1)
    return np.asarray(np.einsum("ru,ru->r", anomalous[:, ::-1], precision) / anomalous.sum(1))


def _placed(threshold: Threshold, values: Array, anomalous: NDArray[np.bool_]) -> float:
    if threshold.kind == "best_accuracy":
        return best_accuracy_threshold(values, anomalous)
    if threshold.value is None:
        raise ConfigError(
            "A 'healthy' threshold needs a value measured on held-out healthy images."
        )
    return threshold.value


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    # Refused here, because ranks of what is not finite or not labelled would pass unnoticed.
    values = np.asarray(scores, dtype=np.float64)
    marks = np.asarray(labels)
    if values.ndim != 1 or values.shape != marks.shape:
        raise DataError(
            f"Scores {values.shape} and labels {marks.shape} must be two lists of one length."
        )
    if strange := int((~np.isfinite(values)).sum()):
        raise DataError(f"{strange} of {len(values)} scores are not finite.")
    if not np.isin(marks, (0, 1)).all():
        raise DataError("Labels must be 0 (normal) or 1 (anomalous).")
    anomalous = marks.astype(bool)
    if anomalous.all() or not anomalous.any():
        present = "anomalous" if anomalous.any() else "normal"
        raise DataError(
            f"All {len(marks)} images are {present}; measuring needs images of both classes."
        )
    return values, anomalous
