"""Numbers as HTML tables."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from squid.calibration import Calibration
from squid.config import ThresholdKind
from squid.data.image_set import Splits
from squid.evaluation.confounds import what_it_follows
from squid.evaluation.digits import TRUSTED, DigitMeasures
from squid.evaluation.localisation import PRIORS, Localisation, beats_priors
from squid.evaluation.metrics import MEASURES, Estimate, GroupAuc, Metrics
from squid.evaluation.percent import percent, percent_range, rate_percent
from squid.evaluation.record import Evaluation, TestImages
from squid.evaluation.rsna_class import ClassAuc
from squid.report.figures.images import HEATMAP_NAMES
from squid.report.memories import MemoryReads, effective_slots
from squid.report.page import Html, details, join, note, side_by_side, table, tag
from squid.run import SplitSize

MEASURE_NAMES = dict(zip(MEASURES, (
    "AUC", "Average precision", "Accuracy", "F1", "Sensitivity", "Specificity", "Precision",
), strict=True))  # fmt: skip
UNKNOWN = "-"

_RESTORED = {
    "anomalous": "Anomalous cells reconstructed as the right digit",
    "untouched": "Untouched cells reconstructed as the right digit",
    "blank": "Cells of a blank image reconstructed as the right digit",
    "faithfulness": "Faithfulness: untouched cells nearer to themselves than to a rival",
}


def interval(estimate: Estimate) -> Html:
    """In percent, with the bounds in small print."""
    bounds = tag("small", percent_range(estimate.low, estimate.high))
    return join([f"{percent(estimate.value)} ", bounds])


def signed(estimate: Estimate) -> Html:
    """A difference of shares, in percentage points."""
    bounds = tag("small", f"{100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}")
    return join([f"{100 * estimate.value:+.1f} ", bounds])


def chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def metrics_table(by_threshold: Mapping[ThresholdKind, Metrics]) -> Html:
    """A column for each kind of threshold."""
    metrics = by_threshold["healthy"]
    both = (metrics, by_threshold["best_accuracy"])
    return table(
        ("Measure", "Threshold from healthy images", "Threshold of best accuracy"),
        [(MEASURE_NAMES[name], *(interval(getattr(m, name)) for m in both)) for name in MEASURES],
        caption=f"In percent, of {metrics.normal} normal and {metrics.anomalous} anomalous test "
        f"images; {rate_percent(metrics.level)} intervals from {metrics.resamples} resamples of "
        "each class.",
    )


def threshold_note(by_threshold: Mapping[ThresholdKind, Metrics], calibration: Calibration) -> Html:
    """How each threshold was set."""
    healthy, best = (by_threshold[kind].threshold for kind in ("healthy", "best_accuracy"))
    rate = healthy.rate or 0.0
    # A rate finer than one in the number of healthy images cannot be promised.
    point = calibration.operating_point(rate)
    weak = "" if point.enough else " They are too few to hold that rate."
    return note(
        f"Threshold from healthy images: {healthy.value:.4g}, measured on {calibration.heldout} "
        f"{calibration.source} for a false-positive rate of {rate_percent(rate)}; "
        f"no test image and no anomalous image was used.{weak} The true rate of such a threshold "
        f"lies {point.range} on images like those, and anywhere on others. "
        f"Threshold of best accuracy: {best.value:.4g}, chosen on these very test images as in the "
        "paper, so all but AUC and average precision is optimistic."
    )


def confounds_section(evaluation: Evaluation) -> Html:
    """What the score follows besides disease."""
    found = evaluation.confounds
    assert found is not None
    rows = [
        (
            f"{name}: {stratum.name}",
            stratum.normal,
            stratum.anomalous,
            UNKNOWN if stratum.auc is None else interval(stratum.auc),
        )
        for name, covariate in found.covariates.items()
        for stratum in covariate.strata
    ]
    correlations = [
        (name, f"{one.healthy:+.2f}", f"{one.all:+.2f}") for name, one in found.correlations.items()
    ]
    return join(
        [
            note(tag("b", "What this score follows. "), what_it_follows(found, evaluation.auc)),
            details(
                "AUC within strata, and rank correlations",
                table(("Stratum", "Normal", "Anomalous", "AUC"), rows, caption=_STRATA),
                table(("Acquisition", "Healthy", "All"), correlations, caption=_CORRELATIONS),
            ),
        ]
    )


_STRATA = "AUC in percent among the test images of each stratum: there the covariate cannot help."
_CORRELATIONS = "Rank correlation of the score with scores that only see how an image was taken."


def findings_table(findings: Mapping[str, GroupAuc]) -> Html:
    # Best detected first.
    ordered = sorted(findings.items(), key=lambda item: -item[1].auc.value)
    return table(
        ("Finding", "Images", "AUC"),
        [(name, group.count, interval(group.auc)) for name, group in ordered],
        caption="AUC in percent of the images with each finding, perhaps among others, against all "
        "normal ones.",
    )


def rsna_class_table(found: Mapping[str, ClassAuc]) -> Html:
    return table(
        ("RSNA's class", "Healthy", "Abnormal", "AUC"),
        [(name, one.normal, one.anomalous, interval(one.auc)) for name, one in found.items()],
        caption="AUC in percent of images that radiologists of the RSNA challenge called abnormal "
        "against those they called normal, whatever NIH's label says.",
    )


def localisation_table(found: Mapping[str, Localisation]) -> Html:
    """Heatmaps and priors against boxes; those that beat both priors are marked."""
    first = next(iter(found.values()))
    rows = []
    for name, one in found.items():
        better = "" if name in PRIORS else "yes" if beats_priors(found, name) else "no"
        measures = (one.pointing, one.auroc, one.average_precision, one.overlap)
        rows.append((HEATMAP_NAMES.get(name, name), better, *map(interval, measures)))
    return table(
        ("Heatmap", "Beats both priors", "Hits", "Pixel AUROC", "Pixel AP", "Dice"),
        rows,
        caption=f"In percent, of {first.images} anomalous images with boxes. Hits: the highest "
        "pixel lies in a box. The priors, the centre and the mean box of the validation images, "
        "know no image.",
    )


def splits_table(recorded: Mapping[str, SplitSize], splits: Splits | None) -> Html:
    """As recorded in training; patients where the images could be read again."""
    now = splits.table() if splits else []
    # Patients are not recorded in training: they are counted in the images, if those are here.
    patients = {row.split: row.patients for row in now if row.patients is not None}
    counts = [(name, row.normal, row.anomalous) for name, row in recorded.items()]
    if not patients:
        return table(("Split", "Normal", "Anomalous"), counts, caption="Images of each split.")
    return table(
        ("Split", "Normal", "Anomalous", "Patients"),
        [(*row, patients.get(row[0], UNKNOWN)) for row in counts],
        caption="Images and patients of each split.",
    )


def digit_tables(measures: Sequence[DigitMeasures]) -> Html:
    return side_by_side(_kinds(measures), join([_localisation(measures), _restoration(measures)]))


def _under(noise: float) -> str:
    return f"noise {noise:g}" if noise else "clean"


def _kinds(measures: Sequence[DigitMeasures]) -> Html:
    together = [m.kinds for m in measures]
    alone = [m.kinds_alone for m in measures]
    header = ("Anomaly", "Images", *(_under(m.noise) for m in measures))
    return join(
        [
            table(header, _aucs(together), caption="AUC in percent of images with this anomaly."),
            table(
                header,
                _aucs(alone),
                caption="AUC in percent of images with this kind of anomaly only.",
            ),
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
            (HEATMAP_NAMES[kind], *(percent(m.localisation[kind]) for m in measures))
            for kind in measures[0].localisation
        ],
        caption="Localisation: AUC (%) of the mean heat of anomalous cells against all others.",
    )


def _restoration(measures: Sequence[DigitMeasures]) -> Html:
    if any(m.restoration is None for m in measures):
        return Html()
    # The shares are only as good as the classifier that reads the cells.
    reader = (
        f"a classifier that is right on {percent(measures[0].reader_accuracy)} % of clean cells"
    )
    made = table(
        ("Share of cells", *(_under(m.noise) for m in measures)),
        [
            (text, *(percent(getattr(m.restoration, name)) for m in measures))
            for name, text in _RESTORED.items()
        ],
        caption=f"Restoration in percent, read by {reader}.",
    )
    warning = note(f"That is less than {rate_percent(TRUSTED)}: do not rely on these shares.")
    return made if measures[0].trusted else join([made, warning])


def images_table(
    images: TestImages,
    scores: NDArray[np.float64],
    places: Sequence[int],
    calibration: Calibration,
) -> Html:
    """The images of a sheet with their whole names."""
    standardised = calibration.standardised(scores[list(places)])
    return table(
        ("Image", "Shows", "Score", "Standardised"),
        [
            (images.name[place], images.truth(place), f"{scores[place]:.5g}", f"{s:.3f}")
            for place, s in zip(places, standardised, strict=True)
        ],
        caption="From left to right. Standardised: 0.5 is the average healthy image; "
        "it is not a chance of disease.",
        words=True,
    )


def memories_table(reads: Sequence[MemoryReads]) -> Html:
    rows = [
        (m.name, *m.use.shape, percent((m.use > 0).mean()), f"{effective_slots(m.use):.1f}")
        for m in reads
    ]
    return table(
        ("Memory", "Regions", "Slots each", "Ever read (%)", "Effective slots"),
        rows,
        caption="Use of the slots over training images. Effective: so many equally read slots of a "
        "region would be as diverse (exponential of the entropy, a mean over regions).",
    )
