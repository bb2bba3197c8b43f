"""The positive predictive value and its interval, from counts of test images."""

import numpy as np
import pytest
from scipy.stats import binomtest

from squid.errors import ConfigError
from squid.evaluation.metrics import evaluate, healthy
from squid.evaluation.prevalence import predictive_value


def metrics(found, anomalous, wrong, normal):
    """Metrics of scores at a threshold that flags so many of the images of each class."""
    scores = np.zeros(anomalous + normal)
    scores[:found] = scores[anomalous : anomalous + wrong] = 1.0
    labels = [1] * anomalous + [0] * normal
    return evaluate(scores, labels, threshold=healthy(0.5), resamples=50)


@pytest.mark.parametrize(
    ("sensitivity", "rate", "prevalence", "value"),
    [(0.91, 0.25, 0.01, 0.035), (0.60, 0.05, 0.01, 0.108), (0.5, 0.5, 0.3, 0.3)],
)
def test_the_values_of_the_specification(sensitivity, rate, prevalence, value):
    one = metrics(round(100 * sensitivity), 100, round(100 * rate), 100)
    assert predictive_value(one, prevalence).value == pytest.approx(value, abs=0.0005)


def test_the_interval_has_the_worst_and_the_best_of_both():
    """From the exact intervals of both shares, as SciPy computes them."""
    found = predictive_value(metrics(45, 50, 8, 40), 0.1)
    right, wrong = (binomtest(k, n).proportion_ci() for k, n in ((45, 50), (8, 40)))
    assert found.low == pytest.approx(0.1 * right.low / (0.1 * right.low + 0.9 * wrong.high))
    assert found.value == pytest.approx(0.09 / (0.09 + 0.18))
    assert found.high == pytest.approx(0.1 * right.high / (0.1 * right.high + 0.9 * wrong.low))
    assert found.sentence == (
        "Where 10 % of the images are anomalous, 33.3 % of the flagged ones are (19.6 % to 54.3 %, "
        "from 40 normal and 50 anomalous test images)."
    )


def test_few_images_without_a_mistake_are_no_certainty():
    """Every resample of 2 normal images that are not flagged has none that is: a bootstrap interval
    would have no width. So few allow a false-positive rate of 84 %."""
    found = predictive_value(metrics(8, 8, 0, 2), 0.05)
    assert found.value == 1.0
    assert found.low == pytest.approx(0.038, abs=0.0005)
    assert "2 normal and 8 anomalous test images" in found.sentence


def test_where_nothing_is_flagged_the_value_is_unknown():
    found = predictive_value(metrics(0, 10, 0, 10), 0.1)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.sentence.startswith("This threshold flags no test image")
    assert "10 %" not in found.sentence


def test_false_positives_alone_make_a_value_of_zero():
    found = predictive_value(metrics(0, 10, 3, 10), 0.1)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high is not None
    assert found.high > 0.1


@pytest.mark.parametrize("prevalence", [0, 1, -1, 50, float("nan")])
def test_a_prevalence_is_a_share(prevalence):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        predictive_value(metrics(1, 2, 1, 2), prevalence)
