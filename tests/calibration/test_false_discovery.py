"""Flagging a worklist by the share of healthy images among those flagged (PRODUCT.md, D3, D5)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squid.calibration import calibrate
from squid.calibration.false_discovery import benjamini_hochberg, ties_needed
from squid.errors import ConfigError


@given(
    st.lists(st.floats(0.001, 1), min_size=1, max_size=40),
    st.floats(0.01, 0.9),
)
def test_it_is_the_procedure_by_brute_force(p_values, share):
    """The largest set of smallest p-values whose last one is at most share * size / count."""
    expected, count = -1.0, len(p_values)
    for size, p in enumerate(sorted(p_values), 1):
        if p <= share * size / count:
            expected = p
    found = benjamini_hochberg(np.array(p_values), share)
    assert found.tolist() == [p <= expected for p in p_values]


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_the_share_of_healthy_images_is_kept(share):
    """A worklist of 180 healthy and 20 anomalous images beside 500 held-out ones, 500 times."""
    rng, shares, found = np.random.default_rng(0), [], []
    for _ in range(500):
        calibration = calibrate([0.0], rng.normal(size=500))
        scores = np.concatenate([rng.normal(size=180), rng.normal(3.5, 1, size=20)])
        flagged = scores >= calibration.false_discovery_threshold(scores, share)
        shares.append(flagged[:180].sum() / max(1, flagged.sum()))
        found.append(flagged[180:].mean())
    error = np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) <= share + error
    assert np.mean(found) > 0.3


def test_p_values_of_healthy_images_are_uniform():
    """D2: over many held-out sets, by Kolmogorov and Smirnov's test on the continuous form."""
    from scipy.stats import kstest

    rng, n, found = np.random.default_rng(0), 99, []
    for _ in range(3000):
        found.append(float(calibrate([0.0], rng.normal(size=n)).p_value(rng.normal())))
    # p is uniform on 1/100, 2/100 ... 1; noise of that width makes it uniform on (0, 1).
    assert kstest(np.array(found) - rng.random(len(found)) / (n + 1), "uniform").pvalue > 0.01


# Real scores, of which some are equal


def test_real_p_values_of_healthy_images_are_uniform(zhanglab):
    """D2: a random healthy image beside 99 others, as D1 splits them; 0.01 for all ten seeds."""
    from scipy.stats import kstest

    rng, n = np.random.default_rng(0), 99
    for healthy, _ in zhanglab:
        found = []
        for _ in range(500):
            new, *known = rng.permutation(healthy)[: n + 1]
            found.append(float(calibrate([0.0], known).p_value(new)))
        assert kstest(np.array(found) - rng.random(len(found)) / (n + 1), "uniform").pvalue > 0.001
        assert np.mean(np.array(found) <= 0.1) <= 0.1 + 3 * math.sqrt(0.09 / len(found))


@pytest.mark.parametrize(("share", "least"), [(0.1, 0.1), (0.2, 0.3)])
def test_the_share_of_healthy_images_is_kept_on_real_scores(zhanglab, share, least):
    """D3: 134 healthy images set the p-values of a worklist of the other 100 and 50 anomalous ones,
    with each seed of the training 200 times."""
    rng, shares, found = np.random.default_rng(0), [], []
    for healthy, anomalous in zhanglab:
        for _ in range(200):
            order = rng.permutation(healthy)
            scores = np.concatenate([order[134:], rng.choice(anomalous, 50, replace=False)])
            threshold = calibrate([0.0], order[:134]).false_discovery_threshold(scores, share)
            flagged = scores >= threshold
            shares.append(flagged[:100].sum() / max(1, flagged.sum()))
            found.append(flagged[100:].mean())
    assert np.mean(shares) <= share + np.std(shares) / math.sqrt(len(shares))
    assert np.mean(found) > least


def test_where_it_cannot_work():
    assert ties_needed(100, 200, 0.2) == 10
    assert ties_needed(1000, 20, 0.1) == 1
    calibration = calibrate([0.0], np.arange(100.0))
    few, many = np.full(200, 50.0), np.full(200, 50.0)
    few[:9], many[:10] = 1000.0, 1000.0
    assert calibration.false_discovery_threshold(few, 0.2) == math.inf
    assert calibration.false_discovery_threshold(many, 0.2) == 1000.0
    assert calibration.false_discovery_threshold([], 0.2) == math.inf


def test_a_share_outside_zero_and_one_is_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        calibrate([0.0], [1.0]).false_discovery_threshold([0.0], 1.0)
