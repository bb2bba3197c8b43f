"""From a detector and a test split to the typed record of how well it detects."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from squid.calibration import Calibration
from squid.config import Device, EvaluatedSplit, Selection
from squid.data.image_set import Splits
from squid.data.pixels import add_noise
from squid.detector import Detector
from squid.errors import DataError
from squid.evaluation.confounds import confounds, what_it_follows
from squid.evaluation.digits import DigitMeasures, measure_digits, train_reader
from squid.evaluation.localisation import measure_localisation
from squid.evaluation.metrics import (
    BEST_ACCURACY,
    Metrics,
    estimate,
    evaluate,
    healthy,
    per_group_auc,
    resampled_auc,
)
from squid.evaluation.percent import percent, percent_range, rate_percent
from squid.evaluation.record import Evaluation, Evaluations, TestImages, read_record
from squid.evaluation.rsna_class import rsna_class_aucs
from squid.evaluation.selection import Selected, Snapshots, select
from squid.run import Run
from squid.run.files import check_file

NOISE = 0.1
"""Standard deviation of the noise under which DigitAnatomy is measured a second time."""


def evaluate_run(
    out: Run | Path | str,
    *,
    device: Device = "auto",
    settings: Sequence[str] = (),
) -> Evaluations:
    """Evaluate a run on the test split of its recipe, and keep the record in the run folder.

    With `settings` other data is scored (another hospital, another variant of DigitAnatomy), and
    nothing is written.
    """
    run = Run.open(out)
    detector = Detector.load(run, device=device)
    recipe = run.recipe.with_settings(settings) if settings else run.recipe
    splits = recipe.data.load(recipe.method.size)
    # Other data than that of the training: the folder's record and snapshots do not belong to it.
    if settings:
        return evaluate_detector(detector, splits, data=recipe.data.name)
    _refuse_other_data(run, splits)
    evaluations = evaluate_detector(detector, splits, snapshots=run.snapshots)
    save_evaluations(run, evaluations)
    return evaluations


def at_threshold_of(calibration: Calibration, record: Evaluations, rate: float) -> Metrics:
    """The metrics of the final weights at the threshold of a site's calibration; `rate` is that of
    the recipe, for a calibration that names none."""
    point = calibration.operating_point(calibration.rate or rate, calibration.confidence)
    threshold = healthy(point.threshold, point.rate)
    return evaluate(record.final.scores, record.images.labels, threshold=threshold)


def save_evaluations(run: Run, evaluations: Evaluations) -> None:
    """Keep the record as `metrics.json` in the run folder, and what a reader must know of it in the
    model card."""
    run.save_metrics(evaluations)
    run.write_in_model_card("What this score follows", _card_section(evaluations))


def _card_section(evaluations: Evaluations) -> str:
    """The headline numbers of the run with their n, and what its score follows besides disease."""
    final, metrics = evaluations.final, evaluations.final.metrics["healthy"]
    alarms, found = 1 - metrics.specificity.value, metrics.sensitivity.value
    paragraph = (
        f"On {metrics.normal} normal and {metrics.anomalous} anomalous test images "
        f"({evaluations.data}) it has an AUC of {percent(metrics.auc.value)} "
        f"({percent_range(metrics.auc.low, metrics.auc.high)}, "
        f"{rate_percent(metrics.level)} interval). At the threshold from held-out healthy images "
        f"it flags {percent(alarms)} % of the normal and {percent(found)} % of the anomalous ones."
    )
    if final.confounds is not None:
        paragraph += f" {what_it_follows(final.confounds, final.auc)}"
    return textwrap.fill(paragraph, 100, break_long_words=False, break_on_hyphens=False)


def read_evaluations(run: Run) -> Evaluations | None:
    """The record in the run folder; None where the run is not evaluated yet."""
    path = check_file(run.path / "metrics.json")
    return read_record(Evaluations, path) if path.is_file() else None


def evaluate_detector(
    detector: Detector,
    splits: Splits,
    *,
    snapshots: Snapshots | None = None,
    data: str | None = None,
    split: EvaluatedSplit = "test",
) -> Evaluations:
    """Every selection on the test split, at both kinds of threshold. The validation split, which
    serves choices between settings, has no epoch by labels: those would be of the same images."""
    splits, snapshots = evaluated(split, splits, snapshots)
    if not len(splits.test):
        raise DataError("The data has no test images; give its recipe a test split.")
    recipe = detector.recipe
    rate = recipe.false_positive_rate
    # Scored once; every measure below reuses these numbers.
    final, noise = detector.score(splits.test.pixels), recipe.train.snapshot_noise
    noisy = detector.score(add_noise(splits.test.pixels, noise)) if noise else None
    selected: dict[Selection, Selected] = {
        "final": Selected(final, detector.calibration.threshold(rate), noisy=noisy)
    }
    if snapshots:
        selected |= select(snapshots, splits.validation.labels, rate)
    if split == "validation":
        selected.pop("best_epoch", None)
    by_selection = {name: _evaluation(name, one, splits, rate) for name, one in selected.items()}
    # Heatmaps are made by the final weights only: snapshots keep scores, no networks.
    places = {
        "localisation": measure_localisation(detector, splits),
        "digits": _digit_measures(detector, splits),
    }
    by_selection["final"] = by_selection["final"].model_copy(update=places)
    return Evaluations(
        method=recipe.method.name,
        data=data or recipe.data.name,
        seed=recipe.seed,
        fingerprint=splits.fingerprint,
        split=split,
        images=TestImages.of(splits.test),
        by_selection=by_selection,
    )


def evaluated(
    split: EvaluatedSplit, splits: Splits, snapshots: Snapshots | None
) -> tuple[Splits, Snapshots | None]:
    """The images to evaluate in the place of the test images, and so their scores in snapshots: a
    choice between settings must not see those of the test images."""
    if split == "test":
        return splits, snapshots
    if snapshots is not None:
        seen = snapshots["validation"]
        snapshots = {"epochs": snapshots["epochs"], "validation": seen, "test": seen}
    return replace(splits, test=splits.validation), snapshots


def _evaluation(name: Selection, selected: Selected, splits: Splits, rate: float) -> Evaluation:
    images = splits.test
    measure = partial(evaluate, selected.test, images.labels)
    by_finding = partial(per_group_auc, selected.test, images.labels)
    return Evaluation(
        selection=name,
        epoch=selected.epoch,
        metrics={
            "healthy": measure(threshold=healthy(selected.threshold, rate)),
            "best_accuracy": measure(threshold=BEST_ACCURACY),
        },
        findings={} if images.findings is None else by_finding(images.findings),
        rsna_class=rsna_class_aucs(selected.test, images),
        confounds=confounds(selected.test, splits),
        noisy_auc=None
        if selected.noisy is None
        else estimate(*resampled_auc(selected.noisy, images.labels)),
        scores=tuple(selected.test.tolist()),
    )


def _digit_measures(detector: Detector, splits: Splits) -> tuple[DigitMeasures, ...]:
    """The place and kind of every anomaly of DigitAnatomy are known, so more can be measured."""
    if splits.test.cells is None:
        return ()
    # Trained once for both levels of noise.
    reader = train_reader(splits.train)
    measure = partial(
        measure_digits, detector.method, splits, device=detector.device, reader=reader
    )
    with torch.no_grad():
        return tuple(measure(noise=std) for std in (0.0, NOISE))


def _refuse_other_data(run: Run, splits: Splits) -> None:
    trained_on = run.environment.data
    if trained_on != splits.fingerprint:
        raise DataError(
            f"The data of {run.path} changed since its training (fingerprint {splits.fingerprint}, "
            f"then {trained_on}); restore it or train again."
        )
