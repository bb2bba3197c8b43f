"""How a training becomes one score per image: which of its snapshots speak, and who chose them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from squid.calibration import calibrate
from squid.config import Selection
from squid.evaluation.metrics import auc

Array = NDArray[np.float64]
Snapshots = Mapping[str, NDArray[np.generic]]
"""`epochs` (s,), and the standardised scores `validation` (s, n) and `test` (s, m)."""

SELECTION: dict[Selection, str] = {
    "last": "end of training, no label",
    "paper": "epoch by labels (the paper's)",
    "snapshots": "mean of snapshots, no label",
}
"""Each protocol's selection rule, as tables print it."""
TOLERANCE = 0.005
"""The authors keep the latest epoch whose validation AUC is at most this far below the best."""


@dataclass(frozen=True)
class SelectedScores:
    """The scores by which a protocol judges a training."""

    validation: Array
    test: Array
    epoch: int | None = None
    """None where several epochs speak."""


def select_scores(
    snapshots: Snapshots, validation_labels: NDArray[np.int64]
) -> dict[Selection, SelectedScores]:
    """One reading by each protocol. No protocol sees a label of the test images."""
    validation, test = (np.asarray(snapshots[name], np.float64) for name in ("validation", "test"))
    epochs = [int(epoch) for epoch in snapshots["epochs"]]
    chosen = pick_snapshot(snapshot_aucs(validation, validation_labels))
    return {
        "last": SelectedScores(validation[-1], test[-1], epochs[-1]),
        "paper": SelectedScores(validation[chosen], test[chosen], epochs[chosen]),
        "snapshots": SelectedScores(validation.mean(axis=0), test.mean(axis=0)),
    }


def healthy_threshold(selected: SelectedScores, labels: NDArray[np.int64], rate: float) -> float:
    """From the healthy images of the validation split."""
    healthy = selected.validation[labels == 0]
    return calibrate(healthy, healthy, [rate]).threshold(rate)


def pick_snapshot(aucs: Sequence[float], tolerance: float = TOLERANCE) -> int:
    """The authors' rule: the latest place within `tolerance` of the best AUC up to then."""
    best = np.maximum.accumulate(aucs)
    near = np.asarray(aucs) >= best - tolerance - 1e-12  # a difference of exactly it counts
    return int(np.flatnonzero(near)[-1])


def snapshot_aucs(scores: Array, labels: NDArray[np.int64]) -> list[float]:
    """The AUC at each snapshot, of scores (s, n)."""
    return [auc(row, labels) for row in scores]


def running_means(scores: Array) -> Array:
    """(s, n): what the mean over snapshots was at each of them."""
    counts = np.arange(1, len(scores) + 1)[:, None]
    means: Array = np.cumsum(scores, axis=0) / counts
    return means


def late_auc_range(epochs: Sequence[int], aucs: Sequence[float], share: float = 0.2) -> float:
    """How far apart the AUCs lie that are read in the last `share` of the epochs."""
    late = np.asarray(aucs)[np.asarray(epochs) > (1 - share) * max(epochs)]
    return float(late.max() - late.min())
