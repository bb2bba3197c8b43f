import numpy as np
import pytest
from scipy.stats import binom, fisher_exact, norm
from scipy.stats import binomtest as binomial_test

from squid.calibration import calibrate
from squid.calibration.groups import clopper_pearson, flagged_by_others, group_rates, holm


@pytest.mark.parametrize(("found", "count"), [(0, 10), (3, 40), (10, 10), (57, 212)])
def test_the_interval_is_the_exact_one(found, count):
    low, high = clopper_pearson(found, count)
    theirs = binomial_test(found, count).proportion_ci(0.95, "exact")
    assert (low, high) == pytest.approx((theirs.low, theirs.high))


def test_holms_correction_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_group_that_is_flagged_too_often_is_found_and_no_other():
    groups = ["PA"] * 200 + ["AP"] * 50 + ["LL"] * 150
    flagged = np.arange(400) % 10 == 0  # 10 % of all three
    assert not any(one.differs for one in group_rates(groups, flagged))
    flagged[200:220] = True
    ap, ll, pa = group_rates(groups, flagged)
    assert (ap.name, ap.count, ap.flagged, ap.differs) == ("AP", 50, 23, True)
    assert ap.share == 0.46
    assert ap.low < 0.46 < ap.high
    assert not ll.differs
    # Of the other images 38 in 200 are flagged, so 20 in 200 are fewer, but not by much.
    table = [[20, 180], [38, 162]]
    assert pa.p_value == pytest.approx(2 * fisher_exact(table).pvalue)


def test_one_group_has_nothing_to_differ_from():
    (one,) = group_rates(["PA"] * 20, np.arange(20) < 5)
    assert (one.flagged, one.p_value) == (5, 1.0)


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_a_false_finding_is_as_rare_as_promised(confidence):
    """With scores from which the threshold itself comes, whatever it keeps."""
    rng, groups = np.random.default_rng(0), [f"ward {i % 8}" for i in range(400)]
    named = [
        any(
            one.differs
            for one in group_rates(groups, flagged_by_others(rng.normal(size=400), 0.1, confidence))
        )
        for _ in range(300)
    ]
    assert np.mean(named) <= 0.05 + 2 * binom.std(300, 0.05) / 300


@pytest.mark.parametrize("confidence", [None, 0.9, 0.95])
@pytest.mark.parametrize("rate", [0.05, 0.2])
@pytest.mark.parametrize("scores", [np.arange(60.0), np.arange(60.0) // 7, np.zeros(60)])
def test_each_image_has_the_threshold_of_the_others(scores, rate, confidence):
    scores = np.random.default_rng(0).permutation(scores)
    expected = []
    for i, score in enumerate(scores):
        others = np.delete(scores, i)
        expected.append(
            score >= calibrate(others, others).operating_point(rate, confidence).threshold
        )
    assert flagged_by_others(scores, rate, confidence).tolist() == expected


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_images_are_flagged_as_often_as_new_ones(confidence):
    """The share is that of new images, over thresholds set on one image less."""
    rng = np.random.default_rng(0)
    share = flagged_by_others(rng.normal(size=100), 0.1, confidence).mean()
    sets = (rng.normal(size=99) for _ in range(2000))
    points = [calibrate(one, one).operating_point(0.1, confidence).threshold for one in sets]
    assert share == pytest.approx(norm.sf(points).mean(), abs=0.002)
    assert share == (0.1 if confidence is None else 0.05)


def test_a_single_image_is_not_flagged():
    assert not flagged_by_others(np.array([3.0]), 0.1).any()
