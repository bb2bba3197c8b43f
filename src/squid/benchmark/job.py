"""One cell of a benchmark, from a recipe to `result.json` in its run folder."""

import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from squid.benchmark.measures import backbone, parameters, planned_steps, published_steps
from squid.benchmark.plan import Job
from squid.config import Device, Selection, parse
from squid.data.image_set import Splits
from squid.detector import Detector
from squid.errors import ConfigError, RunError
from squid.evaluation.metrics import BEST_ACCURACY, healthy
from squid.evaluation.selection import (
    SELECTION,
    healthy_threshold,
    late_auc_range,
    running_means,
    select_scores,
    snapshot_aucs,
)
from squid.methods import build
from squid.methods.base import MethodConfig
from squid.recipe import Recipe
from squid.run import Run
from squid.train import Engine, Monitor
from squid.training import evaluate_run, summarise, train_run

RESULT = "result.json"
TIMED = 64
"""Images whose scoring is timed."""
DIGITS = 6
"""Significant ones of a score that is kept."""

Result = dict[str, Any]


def finished(job: Job) -> bool:
    """Whether the cell has its result; one of another recipe is refused, not taken for it."""
    result = read_result(job.folder)
    if result is not None and not _same(result["recipe"], job.recipe):
        raise RunError(
            f"{job.folder} holds the result of another recipe; remove it or choose another --out."
        )
    return result is not None


def _same(values: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether a kept recipe says the same; a key that came into being since has its default."""
    try:
        return parse(Recipe, values, "result") == recipe
    except ConfigError:
        return False


def read_result(folder: Path) -> Result | None:
    path = folder / RESULT
    if not path.is_file():
        return None
    result: Result = json.loads(path.read_text(encoding="utf-8"))
    return result


def run_job(job: Job, *, device: Device = "auto", monitor: Monitor | None = None) -> Result:
    """Train what is not trained yet, measure it by every protocol at both rules, and write it."""
    began = time.monotonic()
    run = Run(job.folder)
    splits = job.recipe.data.load(job.recipe.method.size)
    spent = sum(float(row["seconds"]) for row in run.history)
    if not run.finished:
        engine = Engine(device, precision=job.recipe.train.precision)
        resume = _begun(run, job.recipe)
        train_run(
            job.recipe, job.folder, engine=engine, monitor=monitor, splits=splits,
            resume=resume, overwrite=True,
        )  # fmt: skip
        spent = time.monotonic() - began + (spent if resume else 0.0)
    result = _measured(job, run, splits, device)
    result["seconds"]["training"] = round(spent, 1)
    result["seconds"]["total"] = round(time.monotonic() - began, 1)
    text = json.dumps(result, allow_nan=False) + "\n"
    (job.folder / RESULT).write_text(text, encoding="utf-8")
    return result


def _begun(run: Run, recipe: Recipe) -> bool:
    """Whether there is something to go on with; what another recipe began is replaced."""
    return (run.path / "resume.pt").is_file() and run.recipe == recipe


def _measured(job: Job, run: Run, splits: Splits, device: Device) -> Result:
    evaluated = evaluate_run(job.folder, threshold="healthy", device=device)
    detector = Detector.load(job.folder, device=device)
    final = np.asarray(evaluated["scores"]["score"])
    evaluated = _evaluated(job.recipe, splits, detector, run.snapshots, final)
    environment = run.environment
    return {
        "section": job.section,
        "row": job.row,
        "method": job.recipe.method.name,
        "data": job.recipe.data.name,
        "seed": job.recipe.seed,
        "fingerprint": splits.fingerprint,
        "recipe": job.recipe.model_dump(mode="json"),
        "command": job.command,
        **{key: environment[key] for key in ("version", "commit", "torch", "device")},
        "steps": {
            "run": planned_steps(job.recipe.method, len(splits.train)),
            "published": published_steps(job.recipe.method, len(splits.train)),
        },
        "seconds": {"scoring": _seconds_per_image(detector, splits)},
        "parameters": parameters(detector.method),
        "run_bytes": _run_bytes(run.path),
        "peak_bytes": _peak_bytes(detector.device),
        "backbone": backbone(job.recipe.method),
        "evaluations": {name: metrics for name, (metrics, _) in evaluated.items()},
        "digits": evaluated.get("digits", []),
        "snapshots": _trace(run.snapshots, splits, _ends_in_one(job.recipe.method)),
        "scores": {
            "label": splits.test.labels.tolist(),
            **{name: rounded(scores) for name, (_, scores) in evaluated.items()},
        },
    }


def _evaluated(
    recipe: Recipe,
    splits: Splits,
    detector: Detector,
    snapshots: dict[str, np.ndarray] | None,
    final: NDArray[np.float64],
) -> dict[Selection, tuple[Result, NDArray[np.float64]]]:
    """The metrics of each protocol at both rules, with the scores they were taken from."""
    rate = recipe.false_positive_rate
    found = select_scores(snapshots, splits.validation.labels) if snapshots else {}
    last = _at_both_rules("last", None, final, detector.calibration.threshold(rate), splits, rate)
    evaluated: dict[Selection, tuple[Result, NDArray[np.float64]]] = {"last": (last, final)}
    for name, selected in found.items():
        if name != "last":  # the finished training speaks for it
            value = healthy_threshold(selected, splits.validation.labels, rate)
            metrics = _at_both_rules(name, selected.epoch, selected.test, value, splits, rate)
            evaluated[name] = metrics, selected.test
    return evaluated


def _at_both_rules(
    selection: Selection,
    epoch: int | None,
    scores: NDArray[np.float64],
    threshold: float,
    splits: Splits,
    rate: float,
) -> Result:
    return {
        "selection": SELECTION[selection],
        "epoch": epoch,
        "normals": summarise(scores, splits.test, normals(threshold, rate)),
        "paper": summarise(scores, splits.test, BEST_ACCURACY),
    }


def _ends_in_one(config: MethodConfig) -> bool:
    """Whether the last snapshot is what the training ends in: not where it goes on after that, nor
    where the snapshot is of one member."""
    stages = build(config).stages()
    return bool(stages) and stages[-1].snapshots and stages[-1].member is None


def _trace(
    snapshots: dict[str, np.ndarray] | None, splits: Splits, ends_in_one: bool
) -> Result | None:
    """The test AUC that each snapshot had, and all up to it: to see how steady it is, never to
    choose by."""
    if not snapshots:
        return None
    epochs, labels = snapshots["epochs"].tolist(), splits.test.labels
    alone = snapshot_aucs(snapshots["test"], labels)
    together = snapshot_aucs(running_means(snapshots["test"]), labels)
    steadiness: dict[Selection, float | None] = {
        "last": late_auc_range(epochs, alone) if ends_in_one else None,
        "paper": late_auc_range(epochs, alone),
        "snapshots": late_auc_range(epochs, together),
    }
    return {"epochs": epochs, "auc": alone, "mean_auc": together, "late_auc_range": steadiness}


def _seconds_per_image(detector: Detector, splits: Splits) -> float:
    pixels = splits.test.pixels[:TIMED]
    detector.score(pixels)  # the first call compiles and tunes
    began = time.perf_counter()
    detector.score(pixels)
    return (time.perf_counter() - began) / len(pixels)


def _run_bytes(folder: Path) -> int:
    """Of a finished run, less what is only there to resume and this result."""
    beside = ("resume.pt", RESULT)
    return sum(f.stat().st_size for f in folder.iterdir() if f.is_file() and f.name not in beside)


def _peak_bytes(device: torch.device) -> int:
    """Of the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def rounded(scores: NDArray[np.float64]) -> list[float]:
    """As results keep them."""
    return [float(f"{score:.{DIGITS}g}") for score in scores]
