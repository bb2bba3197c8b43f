"""The sentences that people read in a result; they speak of scores, not of disease."""

from squid.calibration import one_in
from squid.detector import Prediction

BANNER = "RESEARCH USE ONLY - NOT FOR DIAGNOSIS"


def rarity(p_value: float | None) -> str:
    """A p-value as a share of healthy images."""
    if p_value is None:
        return "Not calibrated: no p-value"
    return f"{one_in(p_value)} healthy images scores this high"


def answer(prediction: Prediction, rate: float | None) -> str:
    """The score and the coded answer in words."""
    score = f"Score {prediction.score:.4g}"
    if prediction.flagged is None:
        return f"{score}, without an operating point"
    verb = "reaches" if prediction.flagged else "does not reach"
    target = "" if rate is None else f" (target: {100 * rate:g} % false positives)"
    return f"{score} {verb} the operating point{target}"
