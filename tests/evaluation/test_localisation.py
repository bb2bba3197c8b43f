"""Heatmaps against boxes: each measure by hand, the priors, and a detector on images with boxes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from squid.data.image_set import Box, ImageSet, Splits
from squid.detector import Detector
from squid.evaluation.localisation import (
    PRIORS,
    Localisation,
    beats_priors,
    box_masks,
    dice_overlap,
    localisation,
    measure_localisation,
    pixel_auroc,
    pixel_average_precision,
    pointing,
)

SIDE = 8


def box(x: float, y: float, width: float, height: float) -> Box:
    return Box("opacity", x, y, width, height)


def boxed_images(n: int, side: int, *, bright: bool) -> ImageSet:
    """Half of them anomalous, with a box in the lower right quarter, bright inside it or not."""
    rng = np.random.default_rng(3)
    pixels = torch.from_numpy(rng.integers(60, 90, (n, 1, side, side), dtype=np.uint8))
    labels = np.arange(n) % 2
    if bright:
        pixels[labels == 1, :, side // 2 :, side // 2 :] = 250
    boxes = tuple((box(0.5, 0.5, 0.5, 0.5),) if label else () for label in labels)
    names = tuple(f"{bright} {i}" for i in range(n))
    return ImageSet(pixels, labels.astype(np.int64), names, boxes=boxes)


def test_a_mask_holds_the_pixels_whose_centre_is_in_a_box() -> None:
    masks = box_masks([[box(0.25, 0.5, 0.25, 0.125)], [], [box(0.0, 0.0, 0.06, 1.0)]], SIDE)
    assert masks[0, 4, 2:4].all()
    assert masks[0].sum() == 2
    assert masks[1].sum() == 0
    assert masks[2, :, 0].all(), "a box that is narrower than a pixel marks one column"
    assert masks[2].sum() == SIDE


@given(st.lists(st.floats(-0.5, 1.5), min_size=4, max_size=4))
def test_a_box_beyond_the_image_never_fails(values: list[float]) -> None:
    x, y, width, height = values
    mask = box_masks([[box(x, y, abs(width), abs(height))]], SIDE)
    assert mask.shape == (1, SIDE, SIDE)


def test_pointing_counts_the_highest_pixel_and_shares_ties() -> None:
    inside = box_masks([[box(0, 0, 0.5, 1.0)]] * 3, SIDE)
    maps = np.zeros((3, SIDE, SIDE), np.float32)
    maps[0, 5, 1] = maps[1, 5, 6] = 1  # a hit, a miss, and a map that is the same everywhere
    np.testing.assert_allclose(pointing(maps, inside), [1.0, 0.0, 0.5])


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_pixel_measures_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.integers(0, 4, (2, SIDE, SIDE)).astype(np.float32)  # many ties
    inside = rng.random((2, SIDE, SIDE)) < 0.3
    inside[:, 0, 0], inside[:, 0, 1] = True, False
    for i, (auroc, precision) in enumerate(
        zip(pixel_auroc(maps, inside), pixel_average_precision(maps, inside), strict=True)
    ):
        truth, heat = inside[i].ravel(), maps[i].ravel()
        assert auroc == pytest.approx(roc_auc_score(truth, heat))
        assert precision == pytest.approx(average_precision_score(truth, heat))


def test_the_overlap_of_half_covered_boxes() -> None:
    inside = box_masks([[box(0, 0, 0.5, 1.0)]], SIDE)
    high = np.zeros_like(inside)
    high[0, :4, :4] = True
    assert dice_overlap(high, inside).tolist() == [pytest.approx(2 * 16 / (16 + 32))]


def test_the_means_over_images_have_intervals() -> None:
    inside = box_masks([[box(0, 0, 0.5, 1.0)]] * 4, SIDE)
    maps = np.zeros((4, SIDE, SIDE), np.float32)
    maps[:3, 0, 0] = 1
    maps[3, 0, 7] = 1
    found = localisation(maps, inside, level=0.5, resamples=200)
    assert found.images == 4
    assert found.pointing.value == 0.75
    assert found.pointing.low < 0.75 < found.pointing.high


def test_a_detector_is_measured_beside_both_priors(tiny_run: Path) -> None:
    detector = Detector.load(tiny_run, device="cpu", backend="torch")
    side = detector.recipe.method.size
    images = boxed_images(12, side, bright=True)
    splits = Splits(images.normals, images, images, official=False)
    found = measure_localisation(detector, splits, resamples=20)
    assert set(found) == {*detector.heatmap_kinds, *PRIORS}
    # Every box is the same quarter: its mean is a perfect map, and the centre touches its corner.
    assert found["mean box"].pointing.value == 1.0
    assert found["mean box"].auroc.value == 1.0
    assert found["residual"].auroc.value > 0.8, "an untrained network cannot repeat bright squares"
    assert not beats_priors(found, "centre")
    assert beats_priors(found | {"mean box": found["centre"]}, "residual")


def test_a_heatmap_beats_the_priors_where_its_interval_does() -> None:
    """75 hits of 100 are more than 70, but not surely; 90 are."""
    inside = box_masks([[box(0, 0, 0.5, 1.0)]] * 100, SIDE)

    def hits(count: int) -> Localisation:
        maps = np.zeros((100, SIDE, SIDE), np.float32)
        maps[:count, 0, 0] = 1
        maps[count:, 0, SIDE - 1] = 1
        return localisation(maps, inside, level=0.5, resamples=200)

    found = {"lucky": hits(75), "sure": hits(90), "centre": hits(70), "mean box": hits(60)}
    assert not beats_priors(found, "lucky")
    assert beats_priors(found, "sure")
    assert beats_priors(found | {"centre": hits(60)}, "lucky")


def test_without_boxes_nothing_is_measured(tiny_run: Path) -> None:
    detector = Detector.load(tiny_run, device="cpu", backend="torch")
    images = boxed_images(8, detector.recipe.method.size, bright=False)
    plain = ImageSet(images.pixels, images.labels, images.names)
    assert measure_localisation(detector, Splits(plain, plain, plain, official=False)) == {}
