"""Which snapshots give the scores, on made-up scores of two normal and two anomalous images."""

import numpy as np
import pytest

from squid.evaluation.selection import (
    late_auc_range,
    pick_snapshot,
    running_means,
    select,
    snapshot_aucs,
)

LABELS = np.array([0, 0, 1, 1])
VALIDATION = np.array(
    [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.float64
)  # AUC 1, 0.75, 1, 0
TEST = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [1, 5, 2, 9], [4, 4, 4, 4]], dtype=np.float64)
SNAPSHOTS = {"epochs": np.array([10, 20, 30, 40]), "validation": VALIDATION, "test": TEST}


def test_each_selection_takes_its_snapshots() -> None:
    found = select(SNAPSHOTS, LABELS, 0.5)
    assert list(found) == ["best_epoch", "snapshot_mean"]
    assert found["best_epoch"].epoch == 30, "the latest of the best, not the first"
    np.testing.assert_array_equal(found["best_epoch"].test, [1, 5, 2, 9])
    assert found["snapshot_mean"].epoch is None
    np.testing.assert_array_equal(found["snapshot_mean"].test, [2, 3, 2.25, 4])


def test_without_anomalous_validation_images_no_epoch_is_chosen() -> None:
    assert list(select(SNAPSHOTS, np.zeros(4, np.int64), 0.5)) == ["snapshot_mean"]


def test_thresholds_come_from_healthy_validation_images() -> None:
    """Half of two healthy images may be flagged: just above the higher one."""
    found = select(SNAPSHOTS, LABELS, 0.5)
    assert found["best_epoch"].threshold == np.nextafter(1.0, np.inf)
    assert found["snapshot_mean"].threshold == np.nextafter(1.5, np.inf)


def test_only_the_best_epoch_depends_on_labels_of_anomalous_images() -> None:
    right, wrong = (select(SNAPSHOTS, labels, 0.5) for labels in (LABELS, 1 - LABELS))
    np.testing.assert_array_equal(right["snapshot_mean"].test, wrong["snapshot_mean"].test)
    assert wrong["best_epoch"].epoch == 40


@pytest.mark.parametrize(
    ("aucs", "place"),
    [
        ([0.80, 0.90, 0.896, 0.89], 2),  # within half a point of the best so far
        ([0.90, 0.895, 0.894], 1),  # exactly half a point counts
        ([0.899, 0.90, 0.898, 0.95, 0.90], 3),  # near the best of then, not of now
        ([0.5], 0),
        ([0.7, 0.6, 0.5], 0),
    ],
)
def test_the_authors_take_the_latest_near_the_best(aucs: list[float], place: int) -> None:
    assert pick_snapshot(aucs) == place


def test_the_best_is_that_of_all_epochs_before() -> None:
    """Small steps down do not add up: each is measured from the best, not from the last kept."""
    assert pick_snapshot([0.900, 0.897, 0.894]) == 1


def test_the_late_auc_range_is_that_of_the_last_fifth() -> None:
    epochs = list(range(10, 110, 10))
    aucs = [0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.99, 0.80, 0.83]
    assert late_auc_range(epochs, aucs) == pytest.approx(0.03)
    assert snapshot_aucs(TEST, LABELS) == [1.0, 0.0, 0.75, 0.5]


def test_the_last_running_mean_is_the_mean_of_all_snapshots() -> None:
    means = running_means(TEST)
    np.testing.assert_array_equal(means[0], TEST[0])
    np.testing.assert_array_equal(means[-1], select(SNAPSHOTS, LABELS, 0.5)["snapshot_mean"].test)
