"""The heatmap that is shown where nobody chose one: none that was measured to show nothing."""

from typing import NamedTuple

from squid.detector import Detector
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.localisation import PRIORS, beats_priors
from squid.evaluation.percent import percent
from squid.evaluation.record import Evaluation

NEAR_CHANCE = 0.55
"""Localisation AUC up to which a heatmap is taken for a guess."""


class DefaultHeatmap(NamedTuple):
    """What is shown, and what was passed over."""

    kind: str | None
    """None where the method has no heatmap, or none that shows anything."""
    reason: str = ""
    """Why it is not the method's first kind; '' where it is."""


def default_heatmap(detector: Detector) -> DefaultHeatmap:
    """The method's first kind of heatmap that was not measured to show nothing."""
    kinds, chance = detector.heatmap_kinds, measured_at_chance(detector)
    kind = next((kind for kind in kinds if kind not in chance), None)
    return DefaultHeatmap(kind, "" if not kinds or kind == kinds[0] else chance[kinds[0]])


def measured_at_chance(detector: Detector) -> dict[str, str]:
    """`heatmaps_at_chance` by the evaluation in the detector's run, where there is one."""
    record = None if detector.run is None else read_evaluations(detector.run)
    return {} if record is None else heatmaps_at_chance(record.final)


def heatmaps_at_chance(final: Evaluation) -> dict[str, str]:
    """Kinds of heatmaps that do not find known anomalies, each with the reason."""
    reasons = {}
    for kind, one in final.localisation.items():
        if kind in PRIORS:
            continue
        if one.auroc.value < NEAR_CHANCE:
            reasons[kind] = f"localisation AUC {percent(one.auroc.value)}, guessing gives 50.0"
        elif not beats_priors(final.localisation, kind):
            hits = percent(one.pointing.value)
            reasons[kind] = (
                f"hits {hits} % of boxes, not surely more than a map that knows no image"
            )
    if final.digits:
        for kind, auc in final.digits[0].localisation.items():
            if auc < NEAR_CHANCE:
                reasons[kind] = f"localisation AUC {percent(auc)}, guessing gives 50.0"
    return reasons
