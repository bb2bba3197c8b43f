"""The authors' checkpoint files through the command: scores and reconstructions stay the same."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from squid import Detector
from squid.convert import convert_run
from squid.methods.squid.scores import Prediction
from squid.site import calibrate_site

SQUID = Path(sys.executable).with_name("squid")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def golden(shared):
    def load(name):
        with np.load(shared("golden", f"{name}.npz")) as file:
            return {key: file[key] for key in file.files}

    return load("generator_small"), load("discriminator")


@pytest.fixture(scope="module")
def checkpoints(golden, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    paths = folder / "model.pth", folder / "discriminator.pth"
    for path, case in zip(paths, golden, strict=True):
        under = "sd/"
        state = {k.removeprefix(under): torch.tensor(v) for k, v in case.items() if under in k}
        torch.save(state, path)
    return paths


@pytest.fixture(scope="module")
def converted(checkpoints, tmp_path_factory):
    out = tmp_path_factory.mktemp("converted") / "run"
    done = subprocess.run(
        [SQUID, "convert", *checkpoints, "--out", out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"squid calibrate {out}" in done.stdout
    return out


def test_reconstructions_are_the_authors(converted, golden):
    detector = Detector.load(converted, device="cpu")
    images = torch.from_numpy(golden[0]["x"]).float()
    with torch.no_grad():
        reconstruction = detector.method.reconstruct(images)
    expected = torch.from_numpy(golden[0]["eval/recon"])
    torch.testing.assert_close(reconstruction, expected, **CLOSE)


def test_scores_are_minus_the_authors_logits_of_single_images(converted, golden):
    """Their logits are of plain images, so the generator is left out of this one."""
    method = Detector.load(converted, device="cpu").method
    method._predict = lambda images: Prediction(images, log_variance=None)
    case = golden[1]
    expected = torch.from_numpy(case["official_score_batch1_trainmode_logits"])[:, 0]
    with torch.no_grad():
        scores = method.score(torch.from_numpy(case["x"]))
    torch.testing.assert_close(scores, -expected, **CLOSE)


def test_it_scores_before_it_is_calibrated_and_flags_after(converted, tmp_path):
    run = shutil.copytree(converted, tmp_path / "run")
    images = np.random.default_rng(0).integers(0, 256, (12, 128, 128), dtype=np.uint8)
    before = Detector.load(run, device="cpu").predict(images)
    assert all(np.isfinite(p.score) and p.flagged is None for p in before)
    calibrate_site(run, images, name="here", few=True, device="cpu")
    after = Detector.load(run, device="cpu", calibration="here").predict(images)
    assert [p.score for p in after] == [p.score for p in before]
    assert {p.flagged for p in after} <= {True, False}


def refused(*words):
    done = subprocess.run([SQUID, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_what_is_no_checkpoint_is_refused(checkpoints, tmp_path):
    bad = tmp_path / "bad.pth"
    bad.write_bytes(b"not a checkpoint")
    message = refused("convert", bad, checkpoints[1], "--out", tmp_path / "run")
    assert "is not a state dict that can be loaded safely" in message
    assert "weights_only" not in message
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten_unasked(checkpoints, converted):
    from squid.errors import RunError

    with pytest.raises(RunError, match="already holds a run"):
        convert_run(*checkpoints, converted)
