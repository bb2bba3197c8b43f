"""The share of flagged images that are anomalous, where anomalies are as common as stated."""

from dataclasses import dataclass

from squid.calibration import percent
from squid.errors import ConfigError
from squid.evaluation.metrics import Metrics


@dataclass(frozen=True)
class PredictiveValue:
    """The positive predictive value at a prevalence; it needs labelled test images."""

    prevalence: float
    value: float | None
    low: float | None
    high: float | None
    """From the ends of the intervals of sensitivity and specificity, so wider than 95 %. None, as
    the value, where no test image is flagged."""

    @property
    def sentence(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return (
                "This threshold flags no test image, so the share of flagged images that are "
                "anomalous is unknown."
            )
        return (
            f"Where {percent(self.prevalence)} of the images are anomalous, {percent(self.value)} "
            f"of the flagged ones are ({percent(self.low)} to {percent(self.high)})."
        )


def check_prevalence(prevalence: float) -> None:
    if not 0 < prevalence < 1:
        raise ConfigError(f"A prevalence lies between 0 and 1, not at {prevalence:g}.")


def predictive_value(metrics: Metrics, prevalence: float) -> PredictiveValue:
    """From sensitivity and false-positive rate, which do not depend on the prevalence."""
    check_prevalence(prevalence)
    found, kept = metrics.sensitivity, metrics.specificity
    if not found.value and kept.value == 1:
        return PredictiveValue(prevalence, None, None, None)
    return PredictiveValue(
        prevalence,
        _share(found.value, 1 - kept.value, prevalence),
        _share(found.low, 1 - kept.low, prevalence),
        _share(found.high, 1 - kept.high, prevalence),
    )


def _share(sensitivity: float, false_positives: float, prevalence: float) -> float:
    """0, the least there is, where an end of the intervals flags nothing."""
    found, wrong = sensitivity * prevalence, false_positives * (1 - prevalence)
    return found / (found + wrong) if found + wrong else 0.0
