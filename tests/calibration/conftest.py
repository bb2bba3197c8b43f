"""Real scores for the tests of what calibrations promise."""

import json
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks/results/jobs"


@pytest.fixture(scope="session")
def zhanglab() -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores of ZhangLab's 234 healthy and 390 anomalous test images, by seed of our SQUID."""
    paths = sorted(RESULTS.glob("zhanglab-ours-seed-*.json"))
    assert len(paths) == 10
    return [split(json.loads(path.read_text())["evaluations"]) for path in paths]


def split(evaluations: dict) -> tuple[np.ndarray, np.ndarray]:
    labels = np.array(evaluations["images"]["label"])
    scores = np.array(evaluations["by_selection"]["final"]["scores"])
    return scores[labels == 0], scores[labels == 1]
