import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import binomtest as binomial_test

from squid.calibration.groups import clopper_pearson, group_rates, holm


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
    groups = ["PA"] * 200 + ["AP"] * 50
    flagged = np.arange(250) % 10 == 0  # 10 % of both
    assert not any(one.differs for one in group_rates(groups, flagged, 0.1))
    flagged[200:220] = True
    ap, pa = group_rates(groups, flagged, 0.1)
    assert (ap.name, ap.count, ap.flagged, ap.differs) == ("AP", 50, 23, True)
    assert ap.share == 0.46
    assert ap.low < 0.46 < ap.high
    assert not pa.differs


def test_a_false_finding_is_as_rare_as_promised():
    rng, groups = np.random.default_rng(0), [f"ward {i % 8}" for i in range(400)]
    named = [
        any(one.differs for one in group_rates(groups, rng.random(400) < 0.1, 0.1))
        for _ in range(300)
    ]
    assert np.mean(named) <= 0.05 + 2 * binom.std(300, 0.05) / 300
