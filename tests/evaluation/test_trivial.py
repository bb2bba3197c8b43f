"""The trivial scores: what they measure, and what they reach on ZhangLab."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from squid.data import ZhangLab
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits
from squid.evaluation.metrics import auc
from squid.evaluation.trivial import ACQUISITION, CONTENT, rare_view, trivial_scores

TRIVIAL = ACQUISITION | CONTENT


def images(pixels: np.ndarray, labels: list[int], name: str) -> ImageSet:
    tensor = torch.from_numpy(pixels.astype(np.uint8))[:, None]
    return ImageSet(tensor, np.array(labels), tuple(f"{name}-{i}" for i in range(len(labels))))


@pytest.fixture(scope="module")
def made_up() -> Splits:
    """Training images are multiples of one pattern; the test images are one of them, a brighter
    flat one, and noise."""
    rng = np.random.default_rng(0)
    pattern = rng.integers(0, 100, (8, 8))
    train = np.stack([pattern * factor for factor in (0.5, 0.8, 1.0, 1.5, 2.0)])
    test = np.stack([pattern * 1.0, np.full((8, 8), 250), rng.integers(0, 256, (8, 8))])
    few = images(train, [NORMAL] * 5, "train")
    shown = images(test, [NORMAL, ANOMALOUS, ANOMALOUS], "test")
    return Splits(few, few, shown, official=False)


def test_each_score_is_what_its_name_says(made_up: Splits) -> None:
    scores = trivial_scores(made_up)
    assert list(scores) == list(TRIVIAL)
    pixels = made_up.test.pixels.flatten(1).double().numpy() / 255
    np.testing.assert_allclose(scores["mean intensity"], pixels.mean(1), rtol=1e-5)
    deviation = scores["minus standard deviation"]
    np.testing.assert_allclose(deviation, -pixels.std(1), rtol=1e-5, atol=1e-6)
    images = made_up.test.pixels[:, 0].double().numpy() / 255
    steps = [np.diff(images, axis=1), np.diff(images, axis=2)]
    sharpness = sum((step**2).mean((1, 2)) for step in steps)
    np.testing.assert_allclose(scores["minus sharpness"], -sharpness, rtol=1e-5, atol=1e-6)
    residual = scores["PCA-32 residual"]
    assert residual[0] < 0.01 * residual[2], "a multiple of the pattern leaves nothing over"


def test_neighbours_are_the_two_nearest_training_images(made_up: Splits) -> None:
    train, test = (
        part.pixels.flatten(1).double().numpy() / 255 for part in (made_up.train, made_up.test)
    )
    distances = np.sort(np.linalg.norm(test[:, None] - train[None], axis=2), axis=1)
    expected = distances[:, :2].mean(1)
    np.testing.assert_allclose(trivial_scores(made_up)["pixel kNN"], expected, rtol=1e-4, atol=1e-4)


def test_they_see_training_normals_only(made_up: Splits) -> None:
    labels = [NORMAL] * 5 + [ANOMALOUS]
    strange = np.concatenate([made_up.train.pixels[:, 0].numpy(), made_up.test.pixels[2].numpy()])
    tainted = Splits(images(strange, labels, "t"), made_up.validation, made_up.test, official=False)
    clean, other = trivial_scores(made_up), trivial_scores(tainted)
    for name in TRIVIAL:
        np.testing.assert_array_equal(clean[name], other[name])


def test_zhanglab(shared: Callable[..., Path]) -> None:
    """Measured before on the same test images with another draw of the training split."""
    splits = ZhangLab(root=shared("data", "zhanglab128")).load(128)
    found = {n: 100 * auc(s, splits.test.labels) for n, s in trivial_scores(splits).items()}
    expected = {
        "mean intensity": 42.72,
        "minus standard deviation": 66.16,
        "minus sharpness": 79.31,
        "PCA-32 residual": 40.52,
        "pixel kNN": 52.19,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=0.1)


def test_blurred_images_have_less_power_at_high_frequencies(made_up: Splits) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 32, 32))
    blurred = (noise[1] + np.roll(noise[1], 1, 0) + np.roll(noise[1], 1, 1)) / 3
    shown = images(np.stack([noise[0], blurred]), [NORMAL, ANOMALOUS], "test")
    known = images(np.random.default_rng(1).integers(0, 256, (9, 32, 32)), [NORMAL] * 9, "train")
    found = trivial_scores(Splits(known, known, shown, official=False))
    for name in ("minus high frequencies", "spectrum distance"):
        assert found[name][1] > found[name][0]


def test_a_view_that_training_rarely_has_is_rare(made_up: Splits) -> None:
    train = replace(made_up.train, columns={"view": ("PA", "PA", "PA", "PA", "AP")})
    test = replace(made_up.test, columns={"view": ("PA", "AP", "AP")})
    found = rare_view(train, test)
    assert found is not None
    assert found[0] < found[1] == found[2]
    assert rare_view(made_up.train, made_up.test) is None
