import json

import numpy as np
import pytest

from squid.calibration import Calibration, calibrate
from squid.errors import ConfigError, DataError


def test_standardised_scores_are_the_authors(shared):
    golden = np.load(shared("golden", "score_metrics.npz"))
    mean, std = -float(golden["mu"]), float(golden["sigma"])
    calibration = Calibration(mean=mean, std=std, count=1, thresholds={}, heldout=0)
    theirs = 1 - 1 / (1 + np.exp(-(golden["raw"].astype(float) - golden["mu"]) / golden["sigma"]))
    np.testing.assert_allclose(calibration.standardised(-golden["raw"]), theirs, rtol=1e-6)
    assert golden["threshold"] in calibration.standardised(-golden["raw"]).astype(np.float32)


def test_mean_and_population_std():
    calibration = calibrate([1.0, 3.0], [0.0])
    assert (calibration.mean, calibration.std, calibration.count) == (2.0, 1.0, 2)
    np.testing.assert_allclose(calibration.standardised([2.0, 3.0]), [0.5, 1 / (1 + np.exp(-1))])


def test_standardised_scores_survive_extreme_and_constant_scores():
    calibration = calibrate([5.0, 5.0], [5.0])
    values = calibration.standardised(np.array([-1e6, 5.0, 1e6], dtype=np.float32))
    assert values.dtype == np.float64
    assert values.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("n", "rate", "flagged"), [(9, 0.1, 0), (19, 0.05, 0), (19, 0.1, 1), (99, 0.2, 19)]
)
def test_threshold_is_the_conformal_rank(n, rate, flagged):
    """At most rate * (n + 1) of n + 1 exchangeable scores lie above it; one may be the new one."""
    heldout = np.arange(n, dtype=float)
    calibration = calibrate([0.0], np.random.default_rng(0).permutation(heldout), rates=(rate,))
    assert calibration.flagged(heldout, rate).sum() == flagged
    assert calibration.guaranteed(rate)


def test_false_positive_rate_is_kept_on_average_even_with_ties():
    rng = np.random.default_rng(0)
    flagged = []
    for _ in range(2000):
        calibration = calibrate([0.0], rng.integers(0, 8, 30), rates=(0.2,))
        flagged.append(calibration.flagged(rng.integers(0, 8, 20), 0.2).mean())
    assert 0.05 < np.mean(flagged) <= 0.2


def test_too_few_held_out_images_guarantee_nothing():
    calibration = calibrate([0.0], [3.0, 1.0, 2.0])
    assert not calibration.guaranteed(0.1)
    assert calibration.flagged([3.0, 3.1], 0.1).tolist() == [False, True]


def test_float32_scores_are_flagged_like_the_held_out_scores_they_equal():
    scores = np.random.default_rng(0).normal(size=50).astype(np.float32)
    calibration = calibrate(scores, scores)
    assert calibration.flagged(scores, 0.1).sum() == 4
    assert not calibration.flagged(np.sort(scores)[45:46], 0.1)[0]


def test_json_round_trip_is_exact():
    calibration = calibrate(np.random.default_rng(0).normal(size=40), [0.1, 0.2, 0.7])
    text = json.dumps(calibration.model_dump(mode="json"), allow_nan=False)
    assert Calibration.model_validate(json.loads(text)) == calibration
    assert Calibration.model_validate_json(text).threshold(0.05) == calibration.threshold(0.05)


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(ConfigError, match=r"0\.03; known: 0\.01, 0\.05, 0\.1, 0\.2"):
        calibrate([0.0], [1.0]).threshold(0.03)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        calibrate([0.0], [1.0], rates=(10,))
    with pytest.raises(DataError, match="held-out"):
        calibrate([0.0], [])
    with pytest.raises(DataError, match="1 of 2 training"):
        calibrate([0.0, np.inf], [1.0])
