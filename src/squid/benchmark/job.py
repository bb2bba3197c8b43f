"""One job of a benchmark: train a recipe, evaluate it, write `result.json` in its run folder."""

import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from squid.benchmark.plan import Job
from squid.benchmark.store import RESULT
from squid.config import Device, Selection
from squid.data.image_set import Splits
from squid.detector import Detector
from squid.durable import write_text
from squid.evaluation.evaluate import evaluate_detector, evaluated, save_evaluations
from squid.evaluation.record import AucCurve, Cost, Evaluations, Provenance, Result
from squid.evaluation.selection import (
    Snapshots,
    late_auc_range,
    running_means,
    snapshot_aucs,
)
from squid.methods import build
from squid.methods.base import Method, MethodConfig
from squid.recipe import Recipe
from squid.run import Run
from squid.train import Engine, Monitor
from squid.training import train_run

TIMED = 64
"""Images whose scoring is timed."""
DIGITS = 6
"""Significant digits of a score that is kept."""
SCHEDULE = ("epochs", "steps", "encoder_steps", "batch_size")
"""The fields that a benchmark may shorten."""


def run_job(job: Job, *, device: Device = "auto", monitor: Monitor | None = None) -> Result:
    """Train what is not trained yet, evaluate every selection, and write the result."""
    began = time.monotonic()
    run = Run(job.folder)
    splits = job.recipe.data.load(job.recipe.method.size)
    # Seconds of earlier calls: an interrupted training counts with all its parts.
    spent = sum(float(row["seconds"]) for row in run.history)
    # Trained already: only the evaluation was interrupted, or its result removed.
    if run.finished:
        detector = Detector.load(job.folder, device=device, backend="torch")
    else:
        engine = Engine(device, precision=job.recipe.train.precision)
        resume = _can_resume(run, job.recipe)
        detector = train_run(
            job.recipe, job.folder, engine=engine, monitor=monitor, splits=splits,
            resume=resume, overwrite=True,
        )  # fmt: skip
        spent = time.monotonic() - began + (spent if resume else 0.0)
    evaluations = evaluate_detector(detector, splits, snapshots=run.snapshots, split=job.split)
    # The run folder's own record is that of the test images.
    if job.split == "test":
        save_evaluations(run, evaluations)
    shown, snapshots = evaluated(job.split, splits, run.snapshots)
    result = Result(
        **dict(job.places[0]),
        also=job.also,
        recipe=job.recipe,
        provenance=_provenance(job, run),
        cost=_cost(detector, splits, run.path, training=spent, began=began),
        evaluations=_rounded(evaluations),
        curve=_auc_curve(snapshots, shown, job.recipe.method) if snapshots else None,
    )
    write_text(job.folder / RESULT, result.model_dump_json() + "\n")
    return result


def _can_resume(run: Run, recipe: Recipe) -> bool:
    """Whether a training of this recipe was interrupted; that of another recipe is replaced."""
    return (run.path / "resume.pt").is_file() and run.recipe == recipe.resolved()


def _rounded(evaluations: Evaluations) -> Evaluations:
    """With fewer digits of each score, since results are kept in the repository."""
    short = {
        name: one.model_copy(
            update={"scores": tuple(float(f"{score:.{DIGITS}g}") for score in one.scores)}
        )
        for name, one in evaluations.by_selection.items()
    }
    return evaluations.model_copy(update={"by_selection": short})


def _provenance(job: Job, run: Run) -> Provenance:
    known = run.environment
    return Provenance(
        command=job.command,
        version=known.version,
        commit=known.commit,
        torch=known.torch,
        device=known.device,
    )


# Cost


def _cost(
    detector: Detector, splits: Splits, folder: Path, *, training: float, began: float
) -> Cost:
    config = detector.recipe.method
    return Cost(
        steps=planned_steps(config, len(splits.train)),
        published_steps=published_steps(config, len(splits.train)),
        training_seconds=round(training, 1),
        scoring_seconds=_seconds_per_image(detector, splits),
        total_seconds=round(time.monotonic() - began, 1),
        parameters=parameters(detector.method),
        run_bytes=_run_bytes(folder),
        peak_bytes=_peak_bytes(detector.device),
        backbone=backbone(config),
    )


def planned_steps(config: MethodConfig, images: int) -> int:
    """Training steps of all stages; none for a method fitted in closed form."""
    return sum(
        stage.steps or stage.epochs_over(images) * stage.steps_per_epoch(images)
        for stage in build(config).stages()
    )


def published_steps(config: MethodConfig, images: int) -> int:
    """The same at the schedule of the method's defaults."""
    fields = type(config).model_fields
    # Only the schedule: the data and the size stay those of the job.
    defaults = {name: fields[name].default for name in SCHEDULE if name in fields}
    return planned_steps(config.model_copy(update=defaults), images)


def parameters(method: Method) -> int:
    """How many numbers scoring needs that were learned."""
    return sum(
        values.numel()
        for name, values in method.named_parameters()
        if not name.startswith(method.training_only)
    )


def backbone(config: MethodConfig) -> str | None:
    """The network that gives the features, and whether it is pretrained."""
    # Only some methods have a backbone in their settings.
    settings: Any = getattr(config, "backbone", None)
    if settings is None:
        return None
    source = "random backbone" if settings.weights == "random" else "pretrained"
    return f"{settings.name}, {source}"


def _seconds_per_image(detector: Detector, splits: Splits) -> float:
    pixels = splits.test.pixels[:TIMED]
    detector.score(pixels)  # the first call compiles and tunes
    began = time.perf_counter()
    detector.score(pixels)
    return (time.perf_counter() - began) / len(pixels)


def _run_bytes(folder: Path) -> int:
    """Size of a finished run, without this result and what only serves resuming."""
    left_out = ("resume.pt", RESULT)
    return sum(f.stat().st_size for f in folder.iterdir() if f.is_file() and f.name not in left_out)


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # macOS counts bytes, Linux kibibytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# The AUC over the training


def _auc_curve(snapshots: Snapshots, splits: Splits, config: MethodConfig) -> AucCurve:
    epochs, labels = snapshots["epochs"].tolist(), splits.test.labels
    # How steady single snapshots are, and how steady their running mean is.
    alone = snapshot_aucs(snapshots["test"], labels)  # type: ignore[arg-type]
    together = snapshot_aucs(running_means(snapshots["test"]), labels)  # type: ignore[arg-type]
    late_range: dict[Selection, float | None] = {
        "final": late_auc_range(epochs, alone) if _ends_in_a_snapshot(config) else None,
        "best_epoch": late_auc_range(epochs, alone),
        "snapshot_mean": late_auc_range(epochs, together),
    }
    return AucCurve(
        epochs=tuple(epochs), auc=tuple(alone), mean_auc=tuple(together), late_range=late_range
    )


def _ends_in_a_snapshot(config: MethodConfig) -> bool:
    """Whether the last snapshot is the finished method: not where a later stage takes none, nor
    where a snapshot is of one member of an ensemble."""
    stages = build(config).stages()
    return bool(stages) and stages[-1].snapshots and stages[-1].member is None
