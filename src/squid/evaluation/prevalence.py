"""The share of flagged images that are anomalous, where anomalies are as common as stated."""

from dataclasses import dataclass

from squid.calibration import percent
from squid.calibration.groups import clopper_pearson
from squid.errors import ConfigError
from squid.evaluation.metrics import Metrics


@dataclass(frozen=True)
class PredictiveValue:
    """The positive predictive value at a prevalence; it needs labelled test images."""

    prevalence: float
    value: float | None
    low: float | None
    high: float | None
    """From the ends of the exact 95 % intervals of sensitivity and specificity, so wider than 95 %.
    None, as the value, where no test image is flagged."""
    normal: int
    anomalous: int
    """The test images behind it."""

    @property
    def sentence(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return (
                "This threshold flags no test image, so the share of flagged images that are "
                "anomalous is unknown."
            )
        return (
            f"Where {percent(self.prevalence)} of the images are anomalous, {percent(self.value)} "
            f"of the flagged ones are ({percent(self.low)} to {percent(self.high)}, from "
            f"{self.normal} normal and {self.anomalous} anomalous test images)."
        )


def check_prevalence(prevalence: float) -> None:
    if not 0 < prevalence < 1:
        raise ConfigError(f"A prevalence lies between 0 and 1, not at {prevalence:g}.")


def predictive_value(metrics: Metrics, prevalence: float) -> PredictiveValue:
    """From sensitivity and false-positive rate, which do not depend on the prevalence."""
    check_prevalence(prevalence)
    normal, anomalous = metrics.normal, metrics.anomalous
    found = round(metrics.sensitivity.value * anomalous)
    wrong = normal - round(metrics.specificity.value * normal)
    if not found and not wrong:
        return PredictiveValue(prevalence, None, None, None, normal, anomalous)
    # Exact, from the counts: resampled shares of 0 and 100 % have intervals without a width.
    least_found, most_found = clopper_pearson(found, anomalous)
    least_wrong, most_wrong = clopper_pearson(wrong, normal)
    return PredictiveValue(
        prevalence,
        _share(found / anomalous, wrong / normal, prevalence),
        _share(least_found, most_wrong, prevalence),
        _share(most_found, least_wrong, prevalence),
        normal,
        anomalous,
    )


def _share(sensitivity: float, false_positives: float, prevalence: float) -> float:
    found, wrong = sensitivity * prevalence, false_positives * (1 - prevalence)
    return found / (found + wrong)
