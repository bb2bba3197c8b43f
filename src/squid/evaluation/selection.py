"""Which weights give the scores of a training: its end, one epoch, or all snapshots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from squid.calibration import calibrate
from squid.config import Selection
from squid.evaluation.metrics import auc

Array = NDArray[np.float64]
Snapshots = Mapping[str, NDArray[np.generic]]
"""`epochs` (s,), and the standardised scores `validation` (s, n), `test` (s, m) and, where
the training took them, `noisy` (s, m): of the test images with added noise."""

SELECTION_NAMES: dict[Selection, str] = {
    "final": "end of training, no label",
    "best_epoch": "epoch by labels (the paper's)",
    "snapshot_mean": "mean of snapshots, no label",
}
"""As tables print them."""
TOLERANCE = 0.005
"""The authors keep the latest epoch whose validation AUC is at most this far below the best."""


@dataclass(frozen=True)
class Selected:
    """The scores of one selection, with its threshold from healthy validation images."""

    test: Array
    threshold: float
    epoch: int | None = None
    """None where no single epoch gives the scores."""
    noisy: Array | None = None
    """Scores of the test images with added noise, where the training took them."""


def select(
    snapshots: Snapshots, validation_labels: NDArray[np.int64], rate: float
) -> dict[Selection, Selected]:
    """The selections that snapshots offer. None of them sees a label of the test images, and only
    `best_epoch` sees labels of validation images; where none of those is anomalous, no epoch can be
    chosen by them."""
    validation, test = (np.asarray(snapshots[name], np.float64) for name in ("validation", "test"))
    normal = validation_labels == 0
    noisy = np.asarray(snapshots["noisy"], np.float64) if "noisy" in snapshots else None
    selected: dict[Selection, Selected] = {}
    # The epoch is chosen by labels of validation images, its threshold by healthy ones alone.
    if validation_labels.any():
        chosen = pick_snapshot(snapshot_aucs(validation, validation_labels))
        selected["best_epoch"] = Selected(
            test[chosen],
            _healthy_threshold(validation[chosen, normal], rate),
            int(snapshots["epochs"][chosen]),
            None if noisy is None else noisy[chosen],
        )
    selected["snapshot_mean"] = Selected(
        test.mean(axis=0),
        _healthy_threshold(validation.mean(axis=0)[normal], rate),
        noisy=None if noisy is None else noisy.mean(axis=0),
    )
    return selected


def _healthy_threshold(healthy: Array, rate: float) -> float:
    return calibrate(healthy, healthy).threshold(rate)


def pick_snapshot(aucs: Sequence[float], tolerance: float = TOLERANCE) -> int:
    """The authors' choice: the latest place within `tolerance` of the best AUC up to then."""
    # Compared with the best so far: the authors choose during training and cannot look ahead.
    best = np.maximum.accumulate(aucs)
    near = np.asarray(aucs) >= best - tolerance - 1e-12  # a difference of exactly it counts
    return int(np.flatnonzero(near)[-1])


def snapshot_aucs(scores: Array, labels: NDArray[np.int64]) -> list[float]:
    """The AUC at each snapshot, of scores (s, n)."""
    return [auc(row, labels) for row in scores]


def running_means(scores: Array) -> Array:
    """(s, n): the mean over the snapshots up to each of them."""
    counts = np.arange(1, len(scores) + 1)[:, None]
    means: Array = np.cumsum(scores, axis=0) / counts
    return means


def late_auc_range(epochs: Sequence[int], aucs: Sequence[float], share: float = 0.2) -> float:
    """Largest difference between the AUCs of the last `share` of the epochs."""
    late = np.asarray(aucs)[np.asarray(epochs) > (1 - share) * max(epochs)]
    return float(late.max() - late.min())
