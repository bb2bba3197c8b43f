"""The sentences that people read in a result; they are about scores, not disease."""

from squid.detector import Prediction

BANNER = "RESEARCH USE ONLY - NOT FOR DIAGNOSIS"


def rarity(prediction: Prediction) -> str:
    """The p-value as a share of healthy images."""
    if prediction.p_value is None:
        return "Not calibrated: no p-value"
    return f"{prediction.rarity} healthy images scores this high"


def answer(prediction: Prediction, rate: float | None) -> str:
    """The score and the coded answer in words."""
    score = f"Score {prediction.score:.4g}"
    if prediction.flagged is None:
        return f"{score}, without an operating point"
    verb = "reaches" if prediction.flagged else "does not reach"
    target = "" if rate is None else f" (target: {100 * rate:g} % false positives)"
    return f"{score} {verb} the operating point{target}"
