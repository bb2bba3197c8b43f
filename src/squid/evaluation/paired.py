"""Two sets of scores of the same images, compared by a paired test.

Both have seen the same easy and hard images, so their AUCs move together from one sample of images
to the next: the difference is known better than intervals of the two AUCs suggest. Its standard
error is that of DeLong, DeLong & Clarke-Pearson (Biometrics 1988); no random number is drawn.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from squid.config import Config, Selection
from squid.errors import DataError, RunError
from squid.evaluation.confounds import LEAST
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.metrics import LEVEL, Estimate
from squid.evaluation.record import Evaluations, Result, read_record
from squid.run import Run

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Z = 1.959964
"""Standard errors from the middle to either end of an interval of `LEVEL`."""


class Difference(Config):
    """The AUC of the first set of scores minus that of the second, shares of one."""

    first: float
    second: float
    difference: Estimate
    p: float
    """Two-sided: how often a difference as large would be seen if there were none."""


class Comparison(Config):
    """How far two runs differ."""

    selection: Selection
    images: int
    pooled: Difference
    """Over all images."""
    within: Mapping[str, Difference]
    """Within the strata of each covariate that is known of the images."""
    level: float = LEVEL

    @property
    def named(self) -> dict[str, Difference]:
        """Each difference by what it is of."""
        within = {f"within {name}": one for name, one in self.within.items()}
        return {"all images": self.pooled, **within}


def compare_runs(first: Path, second: Path, selection: Selection = "final") -> Comparison:
    """Two evaluated run folders, or result files of a benchmark."""
    return compare(open_evaluations(first), open_evaluations(second), selection)


def open_evaluations(path: Path) -> Evaluations:
    """Those of a run folder, or of a benchmark's result file."""
    if path.is_file():
        return read_record(Result, path).evaluations
    found = read_evaluations(Run.open(path))
    if found is None:
        raise RunError(f"{path} is not evaluated yet; run: squid evaluate {path}")
    return found


def compare(first: Evaluations, second: Evaluations, selection: Selection) -> Comparison:
    """Refused unless both evaluated the same images."""
    for one in (first, second):
        if selection not in one.by_selection:
            raise DataError(
                f"A run of {one.method} has no scores of the selection '{selection}'; choose "
                f"another, such as {next(iter(one.by_selection))}."
            )
    images = first.images
    if dict(zip(images.name, images.label, strict=True)) != dict(
        zip(second.images.name, second.images.label, strict=True)
    ):
        raise DataError("The two runs were evaluated on different images; a paired test needs one.")
    # The order of the images may differ between versions of a dataset's reader.
    place = {name: i for i, name in enumerate(second.images.name)}
    order = np.array([place[name] for name in images.name])
    scores = first.by_selection[selection].array, second.by_selection[selection].array[order]
    everywhere = [""] * len(images.name)
    pooled = difference(*scores, images.labels, everywhere)
    if pooled is None:
        raise DataError("A paired test needs two images of each class; evaluate on more images.")
    found = {
        name: difference(*scores, images.labels, groups, least=LEAST)
        for name, groups in images.strata.items()
    }
    return Comparison(
        selection=selection,
        images=len(images.name),
        pooled=pooled,
        within={name: one for name, one in found.items() if one is not None},
    )


def difference(
    first: Array, second: Array, labels: Labels, groups: Sequence[str], *, least: int = 2
) -> Difference | None:
    """The mean over groups of images, weighted by anomalous images as in `confounds`; None where no
    group has `least` images of both classes.

    Scores are (n,), or (seeds, n) of several trainings: then AUCs are means over the trainings, and
    the interval is of these trainings on other images.
    """
    first, second = np.atleast_2d(first), np.atleast_2d(second)
    of = np.array(groups)
    aucs, variances, weights = [], [], []
    for name in sorted(set(groups)):
        inside = of == name
        anomalous = labels[inside] == 1
        if min(anomalous.sum(), (~anomalous).sum()) >= least:
            pair = [_mean_placements(scores[:, inside], anomalous) for scores in (first, second)]
            aucs.append([float(found.mean()) for found, _ in pair])
            variances.append(_variance(pair[0][0] - pair[1][0], pair[0][1] - pair[1][1]))
            weights.append(float(anomalous.sum()))
    if not weights:
        return None
    shares = np.array(weights) / sum(weights)
    one, other = (float(value) for value in shares @ np.array(aucs))
    # Groups share no image, so their errors are independent.
    error = math.sqrt(float(shares**2 @ np.array(variances)))
    apart = one - other
    return Difference(
        first=one,
        second=other,
        difference=Estimate(value=apart, low=apart - Z * error, high=apart + Z * error),
        p=_two_sided(apart, error),
    )


def _mean_placements(scores: Array, anomalous: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The mean over trainings (s, n): an AUC that is a mean over trainings is that of these."""
    found = [_placements(one, anomalous) for one in scores]
    positive, negative = (np.mean(parts, axis=0) for parts in zip(*found, strict=True))
    return positive, negative


def _placements(scores: Array, anomalous: NDArray[np.bool_]) -> tuple[Array, Array]:
    """For each anomalous image the share of normal ones that score lower, and for each normal image
    the share of anomalous ones that score higher; ties count half. The mean of either is the
    AUC."""
    positive, negative = scores[anomalous], scores[~anomalous]
    return _share_below(positive, negative), 1 - _share_below(negative, positive)


def _share_below(values: Array, others: Array) -> Array:
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray((below + upto) / (2 * len(others)))


def _variance(positive: Array, negative: Array) -> float:
    """That of a difference of two AUCs, by the differences of their placements."""
    return float(positive.var(ddof=1) / len(positive) + negative.var(ddof=1) / len(negative))


def _two_sided(value: float, error: float) -> float:
    # Scores that rank all images alike leave no error, and no difference.
    if error == 0:
        return 1.0 if value == 0 else 0.0
    return math.erfc(abs(value) / error / math.sqrt(2))
