"""How long a job takes on an NVIDIA H200, by the kept results."""

import json
import statistics
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from squid.benchmark.job import planned_steps
from squid.benchmark.plan import Job
from squid.config import Config, parse
from squid.data.base import DataConfig, PatientSplitConfig
from squid.data.digitanatomy import DigitAnatomy
from squid.data.rsna import Rsna
from squid.evaluation.record import Result
from squid.methods import METHODS
from squid.methods.base import MethodConfig
from squid.methods.fusion import RADIOGRAPHS, FusionConfig

TRAINING_IMAGES = {
    "zhanglab": 1249, "nih": 862, "rsna PA": 1916, "rsna AP": 422, "rsna both": 2338,
}  # fmt: skip
"""Healthy training images of a dataset with its default split, by its name and view: its files need
not be there to list its jobs."""
STUDY_IMAGES = {"rsna": 1593, "both": 1942}
"""Healthy training images of each section of the study on RSNA's validation images."""
STEPS_BY = ("members", "epochs", "parts")
"""Settings of a method that the number of steps depends on, of those that the study varies."""
HEAD = """\
# Training seconds on an NVIDIA H200, several at once: of 1000 steps of each method, then of one
# seed by section and row. Made by docs/reference/generate.py.
"""


class Timings(Config):
    """Training seconds that were measured."""

    steps: dict[str, float]
    """Seconds of 1000 steps of each method."""
    rows: dict[str, dict[str, float]]
    """Seconds of one seed by section and row."""


def expected_seconds(job: Job) -> float | None:
    """Training time: that of the row where it was measured, else that of its method's steps; None
    where neither is known."""
    measured = _timings().rows.get(job.section, {}).get(job.row)
    images = training_images(job.recipe.data)
    if measured is not None or images is None:
        return measured
    return _seconds_of_steps(job.recipe.method, images)


def _seconds_of_steps(method: MethodConfig, images: int) -> float | None:
    # Parts differ in the cost of a step: only the default's were measured as one.
    if isinstance(method, FusionConfig) and _names(method.parts) != _names(RADIOGRAPHS):
        parts = [_seconds_of_steps(part, images) for part in method.parts]
        known = [seconds for seconds in parts if seconds is not None]
        return method.members * sum(known) if len(known) == len(parts) else None
    thousand = _timings().steps.get(method.name)
    return None if thousand is None else thousand * _count_steps(method, images) / 1000


def _names(parts: Iterable[MethodConfig]) -> list[str]:
    return sorted(part.name for part in parts)


def _count_steps(method: MethodConfig, images: int) -> int:
    with torch.device("meta"):  # the steps are counted, no weights are needed
        return planned_steps(method, images)


def training_images(data: DataConfig) -> int | None:
    """About how many images are trained on, without reading them; None where that is not known."""
    if isinstance(data, DigitAnatomy):
        return data.training_normals or data.train
    known = TRAINING_IMAGES.get(f"rsna {data.view}" if isinstance(data, Rsna) else data.name)
    if data.training_normals is not None or known is None:
        return data.training_normals
    if isinstance(data, PatientSplitConfig):
        # Patients have about equally many images each.
        usual = type(data).model_validate({})
        return round(known * data.training_share / usual.training_share)
    return known


@cache
def _timings() -> Timings:
    text = files("squid.benchmark").joinpath("timings.toml").read_text(encoding="utf-8")
    return parse(Timings, tomllib.loads(text), "timings.toml")


def timings(results: Iterable[Result], study: dict[str, list[float]]) -> str:
    """What `expected_seconds` reads, in TOML: the mean over seeds of each row, the median over the
    trainings of each method. Methods without a result are taken from a study, by the seconds of
    1000 steps of its trainings."""
    # Seconds of each seed by section and row, and per 1000 steps by method.
    rows: dict[str, dict[str, list[float]]] = {}
    steps: dict[str, list[float]] = {}
    for result in results:
        seconds = result.cost.training_seconds
        rows.setdefault(result.section, {}).setdefault(result.row, []).append(seconds)
        if result.cost.steps:
            name = result.recipe.method.name
            steps.setdefault(name, []).append(1000 * seconds / result.cost.steps)
    steps = study | steps
    lines = [HEAD, "[steps]"]
    lines += [f"{name} = {statistics.median(found):.3g}" for name, found in sorted(steps.items())]
    for section, measured in sorted(rows.items()):
        lines += ["", f"[rows.{section}]"]
        lines += [f"{row} = {statistics.fmean(found):.0f}" for row, found in measured.items()]
    return "\n".join(lines) + "\n"


def step_seconds(study: Path) -> dict[str, list[float]]:
    """Seconds of 1000 steps of each training of a study on RSNA, by method."""
    rows: list[dict[str, Any]] = json.loads(study.read_text(encoding="utf-8"))["rows"]
    found: dict[str, list[float]] = {}
    for row in rows:
        given, images = row["method"], STUDY_IMAGES[row["section"]]
        config = METHODS[given["name"]].Config
        # Settings of objectives may have other names by now.
        known = {key: given[key] for key in STEPS_BY if key in given}
        count = _count_steps(config.model_validate({"name": given["name"], **known}), images)
        found.setdefault(given["name"], []).append(1000 * row["training_seconds"] / count)
    return found
