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
    """From the ends of the intervals of sensitivity and specificity, so wider than 95 %. None where
    no image is flagged."""

    @property
    def sentence(self) -> str:
        place = f"Where {percent(self.prevalence)} of the images are anomalous"
        if self.value is None or self.low is None or self.high is None:
            return f"{place}, no image is flagged."
        return (
            f"{place}, {percent(self.value)} of the flagged ones are "
            f"({percent(self.low)} to {percent(self.high)})."
        )


def predictive_value(metrics: Metrics, prevalence: float) -> PredictiveValue:
    """From sensitivity and false-positive rate, which do not depend on the prevalence."""
    if not 0 < prevalence < 1:
        raise ConfigError(f"A prevalence lies between 0 and 1, not at {prevalence:g}.")
    found, kept = metrics.sensitivity, metrics.specificity
    return PredictiveValue(
        prevalence,
        _share(found.value, 1 - kept.value, prevalence),
        _share(found.low, 1 - kept.low, prevalence),
        _share(found.high, 1 - kept.high, prevalence),
    )


def _share(sensitivity: float, false_positives: float, prevalence: float) -> float | None:
    found, wrong = sensitivity * prevalence, false_positives * (1 - prevalence)
    return found / (found + wrong) if found + wrong else None
