"""`squid evaluate --prevalence` through the command."""

import csv
import io
import json

import numpy as np
import PIL.Image
import pytest

from squid.evaluation.prevalence import PredictiveValue


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
