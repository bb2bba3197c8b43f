"""`squid evaluate --prevalence` through the command."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.evaluation.prevalence import PredictiveValue

JOBS = Path(__file__).parents[2] / "benchmarks" / "results" / "jobs"


@pytest.fixture
def labelled(tmp_path):
    """Other data with both classes; all but a fifth of the normal images are not tested."""
    return folder(tmp_path / "labelled", normal=20, abnormal=6)


@pytest.fixture
def evaluate(squid, run):
    return lambda *words: squid("evaluate", run, "--device", "cpu", *words)


def data(root):
    return "--set", f'data={{name = "folder", root = "{root}"}}'


def test_the_predictive_value_stands_in_every_form(evaluate, labelled):
    words = (*data(labelled), "--prevalence", "0.01")
    code, out, _ = evaluate(*words, "--format", "json")
    assert code == 0
    found = json.loads(out)
    kept = found["predictive_value"]
    sensitivity = found["metrics"]["sensitivity"]["value"]
    false_positives = 1 - found["metrics"]["specificity"]["value"]
    true = 0.01 * sensitivity
    assert kept["value"] == pytest.approx(true / (true + 0.99 * false_positives))
    assert kept["low"] <= kept["value"] <= kept["high"]
    _, out, _ = evaluate(*words)
    assert PredictiveValue(**kept).sentence in out.splitlines()
    assert "Where 1 % of the images are anomalous" in out
    _, out, _ = evaluate(*words, "--format", "csv")
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(out))}
    assert float(rows["predictive_value"]["value"]) == kept["value"]
    # Unasked it stands in none.
    assert "Where" not in evaluate(*data(labelled))[1]
    assert "predictive_value" not in evaluate(*data(labelled), "--format", "csv")[1]


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ({"normal": 20}, "The data has no test images"),
        ({"train/normal": 8, "test/normal": 4}, "All 4 images are normal; measuring needs"),
    ],
)
def test_without_labelled_images_there_is_no_predictive_value(
    refused, run, tmp_path, classes, sentence
):
    healthy = folder(tmp_path / "healthy", **classes)
    words = ("evaluate", run, "--device", "cpu", *data(healthy), "--prevalence", "0.01")
    assert sentence in refused(*words)


def test_where_no_image_is_flagged_the_share_is_unknown(evaluate, labelled, monkeypatch):
    monkeypatch.setattr("squid.calibration.Calibration.threshold", lambda calibration, rate: 1e9)
    code, out, _ = evaluate(*data(labelled), "--prevalence", "0.01")
    assert code == 0
    assert "This threshold flags no test image" in out
    assert "Where 1 %" not in out


def test_the_threshold_of_a_site_is_measured_on_test_images(evaluate, squid, run, labelled):
    words = ("calibrate", run, labelled / "normal", "--name", "here", "--rate", "0.3")
    assert squid(*words, "--on-average", "--device", "cpu")[0] == 0
    point = json.loads((run / "calibrations/here.json").read_text())
    asked = (*data(labelled), "--calibration", "here", "--prevalence", "0.1", "--format", "json")
    code, out, err = evaluate(*asked)
    assert code == 0
    found = json.loads(out)
    threshold = found["metrics"]["threshold"]
    # The 15th of 20 scores: a new healthy image lies above it three times in ten.
    assert threshold["rate"] == 0.3
    assert threshold["value"] == pytest.approx(point["heldout_scores"][14])
    assert found["predictive_value"]["anomalous"] == 6
    assert "with 20 held-out images the true rate" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--threshold", "best_accuracy"), "leave --selection and --threshold out"),
        (("--selection", "best_epoch"), "leave --selection and --threshold out"),
        ((), "has no calibration 'there' (there is none yet)"),
    ],
)
def test_a_site_has_one_threshold_for_the_final_scores(refused, run, words, sentence):
    assert sentence in refused("evaluate", run, "--calibration", "there", *words)


@pytest.mark.parametrize("share", ["0", "1", "5", "nan"])
def test_a_prevalence_is_checked_before_an_image_is_scored(refused, run, share):
    before = sorted(path.name for path in run.iterdir())
    assert "A prevalence lies between 0 and 1" in refused("evaluate", run, "--prevalence", share)
    assert sorted(path.name for path in run.iterdir()) == before


def folder(root, **classes):
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (60, 50), dtype=np.uint8)
            PIL.Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def test_results_of_a_benchmark_are_reported_with_their_figures(squid, tmp_path):
    kept, out = tmp_path / "kept", tmp_path / "page.html"
    kept.mkdir()
    for row in ("memae", "mnad"):
        shutil.copy(JOBS / f"zhanglab-{row}-seed-0.json", kept)
    squid("report", kept)
    squid("report", *kept.glob("*.json"), "--out", out)
    for page in (kept / "report.html", out):
        html = page.read_text()
        assert "ROC curves of MemAE, MNAD" in html
        assert "Plain and adjusted AUC of MemAE, MNAD" in html


def test_other_json_files_are_no_run_and_no_results(refused, tmp_path):
    (tmp_path / "other.json").write_text("{}")
    assert "is not a run folder" in refused("report", tmp_path)
