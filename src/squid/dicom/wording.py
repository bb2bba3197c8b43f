"""The sentences that people read in a result; they speak of scores, not of disease."""

from squid.detector import Prediction

BANNER = "RESEARCH USE ONLY - NOT FOR DIAGNOSIS"


def rarity(p_value: float | None) -> str:
    """A p-value as a share of healthy images."""
    if p_value is None:
        return "Not calibrated: no p-value"
    count = 1 / p_value
    number = f"{count:.0f}" if count >= 10 else f"{count:.1f}".removesuffix(".0")
    return f"1 in {number} healthy images score this high"


def answer(prediction: Prediction, rate: float | None) -> str:
    """The score and the coded answer in words."""
    score = f"Score {prediction.score:.4g}"
    if prediction.flagged is None:
        return f"{score}, without an operating point"
    verb = "reaches" if prediction.flagged else "does not reach"
    target = "" if rate is None else f" (target: {100 * rate:g} % false positives)"
    return f"{score} {verb} the operating point{target}"
