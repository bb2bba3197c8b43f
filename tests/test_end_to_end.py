"""ZhangLab from the command line: two short epochs at width 4, then all verbs that need the run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

pytestmark = pytest.mark.slow

SQUID = Path(sys.executable).with_name("squid")
RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "zhanglab.toml"
SMALL = (
    "method.size=32",
    "method.width=4",
    "method.discriminator_width=4",
    "method.slots=50",
    "method.matrix_slots=50",
    "method.epochs=2",
    "method.epoch_steps=20",
    "method.target_updates=1",
    "method.score_distillation_epochs=1",
    "train.precision=float32",
    "train.snapshot_every=2",
)


def squid(*words):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [SQUID, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(shared, tmp_path_factory):
    out = tmp_path_factory.mktemp("end-to-end") / "zhanglab"
    settings = [*SMALL, f"data.root={shared('data', 'zhanglab128')}"]
    words = [word for setting in settings for word in ("--set", setting)]
    printed = squid("train", RECIPE, "--out", out, "--device", "cpu", *words)
    assert "1249" in printed  # healthy children to train on
    return out


@pytest.fixture(scope="module")
def originals(shared):
    return sorted(shared("data", "zhanglab_originals", "test").rglob("*.jpeg"))


def test_evaluate(run):
    result = json.loads(squid("evaluate", run, "--device", "cpu", "--format", "json"))
    assert all(np.isfinite(result["metrics"][name]["value"]) for name in ("auc", "f1", "accuracy"))
    kept = json.loads((run / "metrics.json").read_text())
    scores = kept["by_selection"]["final"]["scores"]
    assert len(scores) == 624
    assert np.isfinite(scores).all()


def test_score_a_folder_of_jpeg_files(run, originals):
    folder = originals[0].parents[1]
    rows = json.loads(squid("score", run, folder, "--device", "cpu", "--format", "json"))
    rows = rows["images"]
    assert {row["image"] for row in rows} == set(map(str, originals))
    assert np.isfinite([row["score"] for row in rows]).all()
    assert all(0 <= row["standardised"] <= 1 for row in rows)
    assert {row["flagged"] for row in rows} <= {True, False}


def test_explain(run, originals, tmp_path):
    squid("explain", run, *originals[:2], "--out", tmp_path, "--device", "cpu")
    written = sorted(tmp_path.iterdir())
    assert [path.stem for path in written] == [path.stem for path in originals[:2]]
    with PIL.Image.open(written[0]) as picture:
        assert len(set(picture.convert("L").tobytes())) > 50  # it is no blank picture


def test_calibrate_on_own_healthy_images(run, originals, tmp_path):
    healthy = originals[0].parents[1] / "NORMAL"
    before = (run / "calibration.json").read_text()
    assert len(json.loads(before)["heldout_scores"]) == 100
    squid("calibrate", run, healthy, "--name", "here", "--few", "--device", "cpu")
    site = json.loads((run / "calibrations/here.json").read_text())
    assert len(site["heldout_scores"]) == len(list(healthy.iterdir()))
    assert (run / "calibration.json").read_text() == before
