import json
import math

import numpy as np
import pytest

from squid.calibration import Calibration, calibrate
from squid.errors import ConfigError, DataError


def test_standardised_scores_are_the_authors(shared):
    golden = np.load(shared("golden", "score_metrics.npz"))
    mean, std = -float(golden["mu"]), float(golden["sigma"])
    calibration = Calibration(mean=mean, std=std, count=1, heldout_scores=())
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


def test_training_scores_that_hardly_differ_give_0_or_1_and_no_warning():
    calibration = Calibration(mean=1.0, std=5e-324, count=9, heldout_scores=())
    assert calibration.standardised([0.5, 1.0, 2.0]).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("n", "rate", "flagged"), [(9, 0.1, 0), (19, 0.05, 0), (19, 0.1, 1), (99, 0.2, 19)]
)
def test_threshold_is_the_conformal_rank(n, rate, flagged):
    """At most rate * (n + 1) of n + 1 exchangeable scores lie above it; one may be the new one."""
    heldout = np.arange(n, dtype=float)
    calibration = calibrate([0.0], np.random.default_rng(0).permutation(heldout))
    assert calibration.flagged(heldout, rate).sum() == flagged
    assert calibration.operating_point(rate).enough


def test_false_positive_rate_is_kept_on_average_even_with_ties():
    rng = np.random.default_rng(0)
    flagged = []
    for _ in range(2000):
        calibration = calibrate([0.0], rng.integers(0, 8, 30))
        flagged.append(calibration.flagged(rng.integers(0, 8, 20), 0.2).mean())
    assert 0.05 < np.mean(flagged) <= 0.2


def test_too_few_held_out_images_guarantee_nothing():
    calibration = calibrate([0.0], [3.0, 1.0, 2.0])
    assert not calibration.operating_point(0.1).enough
    assert calibration.flagged([3.0, 3.1], 0.1).tolist() == [False, True]


def test_float32_scores_are_flagged_like_the_held_out_scores_they_equal():
    scores = np.random.default_rng(0).normal(size=50).astype(np.float32)
    calibration = calibrate(scores, scores)
    assert calibration.flagged(scores, 0.1).sum() == 4
    assert not calibration.flagged(np.sort(scores)[45:46], 0.1)[0]


def test_an_image_is_flagged_where_its_p_value_is_at_most_the_rate():
    rng = np.random.default_rng(0)
    calibration, new = calibrate([0.0], rng.normal(size=57)), rng.normal(size=500)
    for rate in (0.05, 0.1, 0.123, 0.2, 0.5):
        flagged = calibration.flagged(new, rate)
        assert np.array_equal(flagged, calibration.p_value(new) <= rate + 1e-12)


@pytest.mark.parametrize(
    ("count", "score", "words"),
    [
        (25, 25.5, "fewer than 1 in 25"),  # above all: p = 1/26 is no estimate
        (25, 24.0, "1 in 13"),  # as high as one of them
        (100, 95.5, "1 in 20"),
        (9, 5.5, "1 in 2.5"),
        (100, -1.0, "1 in 1"),
    ],
)
def test_p_values_in_words(count, score, words):
    known = calibrate([0.0], np.arange(float(count)))
    assert known.rarity([score]) == [words]


def test_a_p_value_counts_held_out_scores_that_are_as_high():
    calibration = calibrate([0.0], [1.0, 2.0, 2.0, 3.0])
    found = calibration.p_value([0.0, 1.0, 2.0, 2.5, 3.0, 9.0])
    assert found.tolist() == [1.0, 1.0, 4 / 5, 2 / 5, 2 / 5, 1 / 5]


def test_json_round_trip_is_exact():
    facts = {"sharpness": [0.3, 0.1]}
    calibration = calibrate(
        np.random.default_rng(0).normal(size=40), [0.7, 0.1, 0.2], facts=facts, rate=0.05
    )
    assert calibration.heldout_scores == (0.1, 0.2, 0.7)
    assert calibration.heldout_facts == {"sharpness": (0.1, 0.3)}
    text = json.dumps(calibration.model_dump(mode="json"), allow_nan=False)
    assert Calibration.model_validate(json.loads(text)) == calibration
    assert Calibration.model_validate_json(text).threshold(0.05) == calibration.threshold(0.05)
    assert repr(calibration) == "Calibration(3 held-out healthy images, 40 training images)"


@pytest.mark.parametrize("scores", [(2.0, 1.0), (0.0, math.nan), (math.inf,)])
def test_held_out_scores_of_a_damaged_file_are_refused(scores):
    with pytest.raises(ValueError, match=r"ascending|finite"):
        Calibration(mean=0.0, std=1.0, count=1, heldout_scores=scores)


def test_what_cannot_be_calibrated_is_refused():
    for rate in (0, 10, math.nan):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            calibrate([0.0], [1.0]).operating_point(rate)
    with pytest.raises(ConfigError, match="A confidence lies"):
        calibrate([0.0], [1.0]).operating_point(0.1, 95)
    with pytest.raises(DataError, match="held-out"):
        calibrate([0.0], [])
    with pytest.raises(DataError, match="1 of 2 training"):
        calibrate([0.0, np.inf], [1.0])
    empty = Calibration(mean=0.0, std=1.0, count=0, heldout_scores=())
    for use in (empty.operating_point, lambda: empty.p_value([0.0]), lambda: empty.drift([0.0])):
        with pytest.raises(ConfigError, match="squid calibrate"):
            use()
