"""The test scores of kept results, and what a study of them is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from squid.errors import DataError
from squid.evaluation.record import Result, read_record

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Study:
    """What a command prints, and the JSON file that it writes."""

    name: str
    lines: list[str]
    content: dict[str, Any]


@dataclass(frozen=True)
class TestScores:
    """The test scores of one training."""

    section: str
    row: str
    seed: int
    commit: str | None
    fingerprint: str
    labels: Labels
    scores: dict[str, Array]
    """By selection; in a study of stops by the epoch at which the training stopped."""


def read_scores(path: Path) -> TestScores:
    """The scores of a job's result, or of `stops-*.json`, which a script that is gone has left."""
    if path.name.startswith("stops-"):
        return _read_stops(path)
    result = read_record(Result, path)
    return TestScores(
        section=result.section,
        row=result.row,
        seed=result.seed,
        commit=result.provenance.commit,
        fingerprint=result.evaluations.fingerprint,
        labels=result.evaluations.images.labels,
        scores={name: one.array for name, one in result.evaluations.by_selection.items()},
    )


def _read_stops(path: Path) -> TestScores:
    values = json.loads(path.read_text(encoding="utf-8"))
    scores = {name: np.array(one) for name, one in values["scores"].items()}
    names = ("section", "row", "seed", "commit", "fingerprint")
    return TestScores(
        **{name: values[name] for name in names}, labels=scores.pop("label"), scores=scores
    )


def read_row(paths: Sequence[Path]) -> list[TestScores]:
    """The scores of one benchmark row, a training each, in the order of their seeds."""
    found = sorted((read_scores(path) for path in paths), key=lambda one: one.seed)
    if len({(one.section, one.row, one.fingerprint) for one in found}) > 1:
        raise DataError("The results are of different rows or splits; give those of one row.")
    return found


def stacked(found: Sequence[TestScores]) -> dict[str, Array]:
    """(trainings, n) scores, by every name that all trainings have."""
    shared = [name for name in found[0].scores if all(name in one.scores for one in found)]
    return {name: np.array([one.scores[name] for one in found]) for name in shared}
