"""How long a job takes on an NVIDIA H200, by the kept results."""

import statistics
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import torch

from squid.benchmark.job import planned_steps
from squid.benchmark.plan import Job
from squid.config import Config, parse
from squid.data.base import DataConfig
from squid.data.digitanatomy import DigitAnatomy
from squid.evaluation.record import Result

TRAINING_IMAGES = {"zhanglab": 1249, "nih": 862}
"""Healthy training images of a dataset whose files need not be there to list its jobs."""
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
    known = _timings()
    measured = known.rows.get(job.section, {}).get(job.row)
    thousand = known.steps.get(job.recipe.method.name)
    images = training_images(job.recipe.data)
    if measured is not None or thousand is None or images is None:
        return measured
    with torch.device("meta"):  # the steps are counted, no weights are needed
        steps = planned_steps(job.recipe.method, images)
    return thousand * steps / 1000


def training_images(data: DataConfig) -> int | None:
    """How many images are trained on, without reading them; None where that is not known."""
    known = data.train if isinstance(data, DigitAnatomy) else TRAINING_IMAGES.get(data.name)
    normals = data.training_normals or known
    return None if normals is None else normals + data.contaminant_count(normals)


@cache
def _timings() -> Timings:
    text = files("squid.benchmark").joinpath("timings.toml").read_text(encoding="utf-8")
    return parse(Timings, tomllib.loads(text), "timings.toml")


def timings(results: Iterable[Result]) -> str:
    """What `expected_seconds` reads, in TOML: the mean over seeds of each row, the median over the
    trainings of each method."""
    # Seconds of each seed by section and row, and per 1000 steps by method.
    rows: dict[str, dict[str, list[float]]] = {}
    steps: dict[str, list[float]] = {}
    for result in results:
        seconds = result.cost.training_seconds
        rows.setdefault(result.section, {}).setdefault(result.row, []).append(seconds)
        if result.cost.steps:
            name = result.recipe.method.name
            steps.setdefault(name, []).append(1000 * seconds / result.cost.steps)
    lines = [HEAD, "[steps]"]
    lines += [f"{name} = {statistics.median(found):.3g}" for name, found in sorted(steps.items())]
    for section, measured in sorted(rows.items()):
        lines += ["", f"[rows.{section}]"]
        lines += [f"{row} = {statistics.fmean(found):.0f}" for row, found in measured.items()]
    return "\n".join(lines) + "\n"
