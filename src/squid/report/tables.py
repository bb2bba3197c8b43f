"""Numbers as HTML tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from squid.calibration import Calibration
from squid.data.image_set import Splits
from squid.evaluation.digits import TRUSTED, DigitMeasures
from squid.evaluation.metrics import MEASURES, Estimate, GroupAuc, Metrics
from squid.report.figures import HEATMAP_NAMES
from squid.report.memories import Watched, effective_slots
from squid.report.page import Html, join, note, table, tag
from squid.report.scored import Scored

MEASURE_NAMES = dict(zip(MEASURES, (
    "AUC", "Average precision", "Accuracy", "F1", "Sensitivity", "Specificity", "Precision",
), strict=True))  # fmt: skip
UNKNOWN = "-"

_RESTORED = {
    "anomalous": "Anomalous cells drawn as the right digit",
    "untouched": "Untouched cells drawn as the right digit",
    "blank": "Cells of a blank image drawn as the right digit",
    "faithfulness": "Faithfulness: untouched cells nearer to themselves than to a rival",
}


def interval(estimate: Estimate) -> Html:
    bounds = tag("small", f"[{estimate.low:.3f}, {estimate.high:.3f}]")
    return join([f"{estimate.value:.3f} ", bounds])


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"


def metrics_table(metrics: Metrics) -> Html:
    return table(
        ("Measure", f"Value and {metrics.level:.0%} interval"),
        [(MEASURE_NAMES[name], interval(getattr(metrics, name))) for name in MEASURES],
        caption=f"{metrics.normal} normal and {metrics.anomalous} anomalous test images; "
        f"intervals from {metrics.resamples} bootstrap resamples within each class.",
    )


def threshold_note(metrics: Metrics, calibration: Calibration) -> Html:
    """By which rule the line between normal and anomalous was drawn."""
    threshold = metrics.threshold
    if threshold.kind == "paper":
        return note(
            f"Threshold rule paper: {threshold.value:.4g} gives the best accuracy on these very "
            "test images, as in the paper; all but AUC and average precision is optimistic."
        )
    rate = threshold.rate or 0.0
    weak = "" if calibration.guaranteed(rate) else " They are too few to hold that rate."
    return note(
        f"Threshold rule normals: {threshold.value:.4g} was measured on {calibration.heldout} "
        f"{calibration.source} for a false-positive rate of {rate:.0%}; "
        f"no test image and no anomalous image was used.{weak}"
    )


def findings_table(findings: Mapping[str, Any]) -> Html:
    groups = {name: GroupAuc.model_validate(group) for name, group in findings.items()}
    ordered = sorted(groups.items(), key=lambda item: -item[1].auc.value)
    return table(
        ("Finding", "Images", "AUC"),
        [(name, group.count, interval(group.auc)) for name, group in ordered],
        caption="Images with each finding, perhaps among others, against all normal ones.",
    )


def splits_table(recorded: Mapping[str, Mapping[str, int]], splits: Splits | None) -> Html:
    """As recorded in training; patients where the images could be read again."""
    now = splits.table() if splits else []
    patients = {row.split: row.patients for row in now if row.patients is not None}
    counts = [(name, row["normal"], row["anomalous"]) for name, row in recorded.items()]
    if not patients:
        return table(("Split", "Normal", "Anomalous"), counts, caption="Images of each split.")
    return table(
        ("Split", "Normal", "Anomalous", "Patients"),
        [(*row, patients.get(row[0], UNKNOWN)) for row in counts],
        caption="Images and patients of each split.",
    )


def digit_tables(measures: Sequence[DigitMeasures]) -> Html:
    return join([_kinds(measures), _localisation(measures), _restoration(measures)])


def _under(noise: float) -> str:
    return f"noise {noise:g}" if noise else "clean"


def _kinds(measures: Sequence[DigitMeasures]) -> Html:
    together = [m.kinds for m in measures]
    alone = [m.kinds_alone for m in measures]
    header = ("Anomaly", "Images", *(_under(m.noise) for m in measures))
    return join(
        [
            table(header, _aucs(together), caption="AUC of images with this anomaly."),
            table(header, _aucs(alone), caption="AUC of images with this kind of anomaly only."),
        ]
    )


def _aucs(groups: Sequence[Mapping[str, GroupAuc]]) -> list[tuple[object, ...]]:
    return [
        (kind, first.count, *(interval(of_kind[kind].auc) for of_kind in groups))
        for kind, first in groups[0].items()
    ]


def _localisation(measures: Sequence[DigitMeasures]) -> Html:
    return table(
        ("Heatmap", *(_under(m.noise) for m in measures)),
        [
            (HEATMAP_NAMES[kind], *(share(m.localisation[kind]) for m in measures))
            for kind in measures[0].localisation
        ],
        caption="Localisation: AUC of the mean heat of anomalous cells against all other cells.",
    )


def _restoration(measures: Sequence[DigitMeasures]) -> Html:
    if any(m.restoration is None for m in measures):
        return Html()
    reader = f"a classifier that is right on {measures[0].reader_accuracy:.1%} of clean cells"
    made = table(
        ("Share of cells", *(_under(m.noise) for m in measures)),
        [
            (text, *(share(getattr(m.restoration, name)) for m in measures))
            for name, text in _RESTORED.items()
        ],
        caption=f"Restoration, read by {reader}.",
    )
    warning = note(f"That is less than {TRUSTED:.0%}: do not rely on these shares.")
    return made if measures[0].trusted else join([made, warning])


def images_table(scored: Scored, places: Sequence[int], calibration: Calibration) -> Html:
    """The images of a sheet with their whole names."""
    standardised = calibration.standardised(scored.scores[list(places)])
    return table(
        ("Image", "Shows", "Score", "Standardised"),
        [
            (scored.names[place], scored.truth(place), f"{scored.scores[place]:.5g}", f"{p:.3f}")
            for place, p in zip(places, standardised, strict=True)
        ],
        caption="From left to right. Standardised: 0.5 is the average healthy image; "
        "it is not a chance of disease.",
        words=True,
    )


def memories_table(watched: Sequence[Watched]) -> Html:
    rows = [
        (m.name, *m.use.shape, f"{(m.use > 0).mean():.0%}", f"{effective_slots(m.use):.1f}")
        for m in watched
    ]
    return table(
        ("Memory", "Regions", "Slots each", "Ever read", "Effective slots"),
        rows,
        caption="Use of the slots over training images. Effective: so many equally read slots of a "
        "region would be as diverse (exponential of the entropy, a mean over regions).",
    )
