"""Records of evaluations in JSON files: a damaged one is refused, whatever in it is damaged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from squid.errors import DataError
from squid.evaluation.evaluate import evaluate_run, read_evaluations
from squid.evaluation.record import Evaluations
from squid.run import Run

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def evaluated(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("evaluated") / "run"))
    evaluate_run(run, device="cpu")
    return run


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(evaluated, tmp_path / "run"))


def change(run: Path, place: str, value: object) -> None:
    """Set what is at a dotted place in the run's metrics.json."""
    kept = json.loads((run / "metrics.json").read_text())
    *parents, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inside: Any = kept
    for part in parents:
        inside = inside[part]
    inside[last] = value
    (run / "metrics.json").write_text(json.dumps(kept))


FINAL = "by_selection.final"
DAMAGE = [
    (f"{FINAL}.scores.3", NAN, "nan is no number"),
    (f"{FINAL}.scores.3", INF, "inf is no number"),
    (f"{FINAL}.metrics.healthy.auc.low", NAN, "nan is no number"),
    (f"{FINAL}.metrics.healthy.threshold.value", -INF, "-inf is no number"),
    (f"{FINAL}.confounds.correlations", {"trivial": {"healthy": NAN, "all": 0}}, "is no number"),
    (f"{FINAL}.scores", [1.0], "do not have one value for each image"),
    ("images.label.0", 2, "2 is too large"),
    ("images.strata", {"view": ["PA"]}, "do not have one value for each image"),
    ("by_selection", {}, "has no selection 'final'"),
]


@pytest.mark.parametrize(("place", "value", "reason"), DAMAGE)
def test_what_no_evaluation_leaves_is_one_sentence(
    run: Path, place: str, value: object, reason: str
) -> None:
    change(run, place, value)
    with pytest.raises(
        DataError, match=r"metrics\.json is damaged or of another kind \("
    ) as caught:
        read_evaluations(Run(run))
    said = str(caught.value)
    assert reason in said
    assert said.endswith("; make it anew, by squid evaluate or squid benchmark.")
    assert Evaluations.__name__ not in said


def test_no_verb_answers_from_it(run: Path, evaluated: Path, refused: Any) -> None:
    change(run, f"{FINAL}.scores.3", NAN)
    assert "nan is no number" in refused("report", run, "--device", "cpu")
    assert "nan is no number" in refused("compare", run, evaluated)
    assert "nan is no number" in refused("compare", evaluated, run)


def test_one_anomalous_image_is_too_few_for_a_paired_test(
    evaluated: Path, run: Path, refused: Any
) -> None:
    kept = json.loads((run / "metrics.json").read_text())
    labels = [1] + [0] * (len(kept["images"]["label"]) - 1)
    change(run, "images.label", labels)
    assert "needs two images of each class" in refused("compare", run, run)
