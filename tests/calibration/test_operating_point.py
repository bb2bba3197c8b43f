"""Thresholds on average and with confidence, against the specification's table, brute force, and
real scores (PRODUCT.md, D1 and D5)."""

import json
from pathlib import Path

import numpy as np
import pytest

from squid.calibration import calibrate
from squid.calibration.operating_point import needed, rank_for, true_rates

RESULTS = Path(__file__).parents[2] / "benchmarks/results/jobs"
SPLITS = 2000


@pytest.mark.parametrize(
    ("n", "rate", "low", "high", "rank", "mean"),
    [
        (59, 0.05, 1.4, 10.3, 59, 1.7),
        (100, 0.01, 0.1, 3.0, None, None),
        (100, 0.05, 2.0, 8.9, 99, 2.0),
        (100, 0.1, 5.5, 15.2, 96, 5.0),
        (100, 0.2, 13.7, 26.6, 87, 13.9),
        (299, 0.05, 3.1, 7.2, 291, 3.0),
        (1000, 0.05, 3.9, 6.2, 962, 3.9),
    ],
)
def test_ranks_and_intervals_are_those_of_the_table(n, rate, low, high, rank, mean):
    found = [100 * end for end in true_rates(n, rank_for(n, rate))]
    assert found == pytest.approx([low, high], abs=0.05)
    if rank is None:
        assert rank_for(n, rate, 0.95) == n + 1
        assert needed(rate, 0.95) == 299
    else:
        assert rank_for(n, rate, 0.95) == rank
        assert 100 * (n + 1 - rank) / (n + 1) == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize("confidence", [None, 0.9, 0.95])
def test_the_fewest_images_that_support_a_rate(confidence):
    for rate in (0.01, 0.05, 0.1, 0.37, 0.5):
        fewest = needed(rate, confidence)
        assert rank_for(fewest, rate, confidence) <= fewest
        assert rank_for(fewest - 1, rate, confidence) == fewest


def test_too_few_images_are_said():
    point = calibrate([0.0], np.arange(12.0)).operating_point(0.05)
    assert not point.enough
    assert point.note.startswith(
        "12 held-out healthy images cannot support a threshold that flags 5 % of healthy images on "
        "average: it takes 19. It is their highest score; the true rate lies between 0.427 % and"
    )
    point = calibrate([0.0], np.arange(60.0)).operating_point(0.05, 0.95)
    assert (point.kind, point.note) == ("with confidence", "")
    assert point.target == "5 % of healthy images with 95 % confidence"


@pytest.mark.parametrize(
    ("confidence", "count", "least"), [(0.95, 25, 29), (0.95, 28, 29), (None, 8, 9)]
)
def test_a_target_that_is_missed_is_never_stated_as_kept(confidence, count, least):
    """The meaning stands in pages and reports, where nobody sees the note."""
    few = calibrate([0.0], np.arange(float(count))).operating_point(0.1, confidence)
    assert few.meaning.startswith(
        f"highest of {count} held-out scores, too few to flag 10 % of healthy images "
    )
    assert f"(it takes {least}); the true rate lies between" in few.meaning
    enough = calibrate([0.0], np.arange(float(least))).operating_point(0.1, confidence)
    assert enough.meaning.startswith("flags 10 % of healthy images ")
    assert f"; with {least} held-out images the true rate lies between" in enough.meaning


def test_the_rank_with_confidence_is_that_of_brute_force():
    """The chance that the true rate exceeds the target, by counting: uniform scores, whose true
    rate is one minus the threshold."""
    n, rate, rng = 80, 0.1, np.random.default_rng(0)
    rates = 1 - np.sort(rng.random((20_000, n)), axis=1)  # (sets, rank - 1)
    exceeds = (rates > rate).mean(0)
    rank = rank_for(n, rate, 0.95)
    assert exceeds[rank - 1] <= 0.055
    assert exceeds[rank - 2] > 0.055


# Real scores


@pytest.fixture(scope="module")
def healthy():
    """Scores of ZhangLab's 234 healthy test images, by method and seed."""
    paths = sorted(RESULTS.glob("zhanglab-*-seed-0.json"))
    assert len(paths) > 10
    return [real_scores(path) for path in paths]


def real_scores(path):
    evaluations = json.loads(path.read_text())["evaluations"]
    labels = np.array(evaluations["images"]["label"])
    return np.array(evaluations["by_selection"]["final"]["scores"])[labels == 0]


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_rates_hold_on_splits_of_real_scores(healthy, rate):
    """100 images set the threshold, the others are new: on average over splits the rate is kept."""
    rng = np.random.default_rng(0)
    for scores in healthy:
        order = rng.permuted(np.tile(np.arange(len(scores)), (SPLITS, 1)), axis=1)
        known, new = np.sort(scores[order[:, :100]], axis=1), scores[order[:, 100:]]
        flagged = (new > known[:, [rank_for(100, rate) - 1]]).mean(1)
        assert flagged.mean() == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_confidence_and_interval_hold_for_the_true_rate(healthy, rate):
    """The true rate of a threshold is known where the real scores are the whole population: 100 are
    drawn from them, with noise far below their differences in place of ties."""
    rng = np.random.default_rng(0)
    exceeded, covered = [], []
    low, high = true_rates(100, rank_for(100, rate))
    for scores in healthy:
        # Between real scores the population is a straight line of its distribution function.
        ends = np.concatenate([[scores.min() - 1], np.sort(scores)])
        drawn = np.interp(rng.random((SPLITS, 100)), np.linspace(0, 1, len(ends)), ends)
        ranked = np.sort(drawn, axis=1)
        for rank, use in ((rank_for(100, rate, 0.95), exceeded), (rank_for(100, rate), covered)):
            true = 1 - np.interp(ranked[:, rank - 1], ends, np.linspace(0, 1, len(ends)))
            use.append((true > rate) if use is exceeded else (low <= true) & (true <= high))
    assert np.mean(exceeded) <= 0.055
    assert 0.88 <= np.mean(covered) <= 0.92
