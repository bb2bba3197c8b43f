import pytest

from squid.errors import ConfigError
from squid.evaluation.metrics import BEST_ACCURACY, Estimate, evaluate
from squid.evaluation.prevalence import predictive_value


def metrics(sensitivity, specificity):
    """Metrics with these values and intervals (value, low, high)."""
    some = evaluate([0.0, 1.0, 0.5, 2.0], [0, 0, 1, 1], threshold=BEST_ACCURACY)
    found, kept = (
        Estimate(value=value, low=low, high=high) for value, low, high in (sensitivity, specificity)
    )
    return some.model_copy(update={"sensitivity": found, "specificity": kept})


@pytest.mark.parametrize(
    ("sensitivity", "rate", "prevalence", "value"),
    [(0.91, 0.25, 0.01, 0.035), (0.60, 0.05, 0.01, 0.108), (0.5, 0.5, 0.3, 0.3)],
)
def test_the_values_of_the_specification(sensitivity, rate, prevalence, value):
    found = predictive_value(
        metrics((sensitivity, sensitivity, sensitivity), (1 - rate, 1 - rate, 1 - rate)), prevalence
    )
    assert found.value == pytest.approx(value, abs=0.0005)
    assert (found.low, found.high) == (found.value, found.value)


def test_the_interval_has_the_worst_and_the_best_of_both():
    found = predictive_value(metrics((0.9, 0.8, 1.0), (0.8, 0.7, 0.9)), 0.1)
    assert found.low == pytest.approx(0.08 / (0.08 + 0.27))
    assert found.value == pytest.approx(0.09 / (0.09 + 0.18))
    assert found.high == pytest.approx(0.1 / (0.1 + 0.09))
    assert found.sentence == (
        "Where 10 % of the images are anomalous, 33.3 % of the flagged ones are (22.9 % to 52.6 %)."
    )


def test_where_nothing_is_flagged_the_value_is_unknown():
    found = predictive_value(metrics((0, 0, 0), (1, 1, 1)), 0.1)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.sentence.startswith("This threshold flags no test image")
    assert "10 %" not in found.sentence


def test_an_end_of_the_intervals_that_flags_nothing_is_no_missing_value():
    found = predictive_value(metrics((0.5, 0, 1), (1, 1, 1)), 0.1)
    assert (found.value, found.low, found.high) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("prevalence", [0, 1, -1, 50, float("nan")])
def test_a_prevalence_is_a_share(prevalence):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        predictive_value(metrics((0, 0, 0), (1, 1, 1)), prevalence)
