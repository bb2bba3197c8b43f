"""AUC against the healthy class of RSNA's radiologists."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from squid.data.image_set import ImageSet
from squid.data.nih import RSNA_CLASS
from squid.data.rsna import HEALTHY, OPACITY, OTHER
from squid.evaluation.metrics import auc
from squid.evaluation.rsna_class import rsna_class_aucs


def images(*counts: int, labels: np.ndarray | None = None) -> ImageSet:
    """So many unread images, healthy ones, opacities and others."""
    classes = np.repeat(["", HEALTHY, OPACITY, OTHER], counts)
    total = len(classes)
    pixels = torch.zeros(total, 1, 2, 2, dtype=torch.uint8)
    names, column = tuple(map(str, range(total))), tuple(classes.tolist())
    known = np.zeros(total, dtype=np.int64) if labels is None else labels
    return ImageSet(pixels, known, names, columns={RSNA_CLASS: column})


def test_only_images_that_were_read_count_and_nihs_label_does_not() -> None:
    read = images(20, 12, 11, 10)
    scores = np.random.default_rng(0).random(53)
    found = rsna_class_aucs(scores, read, resamples=20)
    assert {name: (one.normal, one.anomalous) for name, one in found.items()} == {
        "opacity": (12, 11), "not normal": (12, 10), "either": (12, 21),
    }  # fmt: skip
    expected = auc(scores[20:43], np.repeat([0, 1], [12, 11]))
    assert found["opacity"].auc.value == pytest.approx(expected)
    assert found["opacity"].auc.low <= expected <= found["opacity"].auc.high
    other = images(20, 12, 11, 10, labels=np.arange(53) % 2)
    assert rsna_class_aucs(scores, other, resamples=20) == found


def test_few_images_give_no_number_and_other_datasets_none() -> None:
    scores = np.random.default_rng(0).random(33)
    assert set(rsna_class_aucs(scores, images(0, 12, 9, 12), resamples=5)) == {
        "not normal", "either",
    }  # fmt: skip
    assert rsna_class_aucs(scores, images(0, 9, 12, 12), resamples=5) == {}
    assert rsna_class_aucs(scores, replace(images(0, 12, 9, 12), columns={}), resamples=5) == {}
