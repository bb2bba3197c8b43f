"""The drift test: what it finds, how often it is wrong, and the shift it could have missed
(PRODUCT.md, D4)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from squid.calibration import calibrate
from squid.calibration.drift import POWER, smallest_shift
from squid.calibration.facts import image_facts
from squid.data.zhanglab import ZhangLab
from squid.evaluation.trivial import pixel_neighbours

RESULTS = Path(__file__).parents[2] / "benchmarks/results/jobs"


def drift(heldout, new, **facts):
    return calibrate([0.0], heldout).drift(new, **facts)


def test_exchangeable_halves_seldom_differ():
    """Halves of real scores, over and over: a difference is found in 1 % of them."""
    evaluations = json.loads((RESULTS / "zhanglab-ours-seed-0.json").read_text())["evaluations"]
    labels = np.array(evaluations["images"]["label"])
    scores = np.array(evaluations["by_selection"]["final"]["scores"])[labels == 0]
    rng, found = np.random.default_rng(0), 0
    for _ in range(1000):
        known, new = np.array_split(rng.permutation(scores), 2)
        found += drift(known, new).found
    assert found <= 15


def test_zhanglab_test_images_differ_from_those_held_out_of_training(shared):
    """A threshold for 10 % flags 26 % of the healthy test images: here the test says why."""
    splits = ZhangLab(root=shared("data", "zhanglab128")).load(64)
    heldout, new = splits.validation.normals.pixels, splits.test.normals.pixels
    train = flat(splits.train.normals.pixels)
    known, scores = (pixel_neighbours(train, flat(pixels)) for pixels in (heldout, new))
    calibration = calibrate([0.0], known, facts=image_facts(heldout))
    found = calibration.drift(scores, image_facts(new))
    assert calibration.flagged(scores, 0.1).mean() == pytest.approx(0.26, abs=0.01)
    assert found.found
    assert found.differing_facts == ["sharpness"]
    half, other = calibrate([0.0], known[:50]), known[50:]
    assert not half.drift(other).found


def test_the_smallest_shift_is_found_with_its_chance():
    rng, n, m = np.random.default_rng(0), 100, 125
    shift = smallest_shift(n, m)
    assert shift == pytest.approx(0.47, abs=0.01)
    found = [drift(rng.normal(size=n), rng.normal(size=m) + shift).found for _ in range(400)]
    assert np.mean(found) == pytest.approx(POWER, abs=0.06)


def test_a_shift_is_measured_in_spreads_of_the_held_out_scores():
    heldout = np.random.default_rng(0).normal(5, 2, size=200)
    found = drift(heldout, heldout + 3)
    assert found.shift == pytest.approx(3 / heldout.std())
    assert (found.heldout, found.new) == (200, 200)
    assert found.ks_p_value < 0.01


def test_another_spread_is_seen_by_kolmogorov_smirnov():
    heldout = np.linspace(-1, 1, 300)
    found = drift(heldout, 4 * heldout)
    assert not found.found
    assert found.ks_p_value < 1e-6


def test_equal_scores_do_not_differ():
    assert drift([1.0] * 5, [1.0] * 9).p_value == 1.0


def test_facts_of_a_known_image():
    pixels = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    pixels[..., 0] = 255  # white left column: differences of 1 along rows, none along columns
    facts = image_facts(pixels)
    assert {name: values.tolist() for name, values in facts.items()} == {
        "brightness": [0.5],
        "contrast": [0.5],
        "sharpness": [1.0],
    }


def flat(pixels):
    return (pixels.numpy().reshape(len(pixels), -1) / 255).astype(np.float32)
