"""Recipe -> run: what is left in the folder, resuming, several seeds, divergence, own images."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from squid import Detector, fit, train_run
from squid.calibration import CalibrationNote
from squid.errors import DataError, DivergedError, RunError
from squid.methods.squid import Squid
from squid.recipe import read_recipe
from squid.run import Run, SplitSize
from squid.train import Engine, Interrupted, Monitor
from squid.training import Recorder, default_recipe, standardised_scores, train_seeds


class StopAt(Monitor):
    """Fails like a machine: nothing is saved any more."""

    def __init__(self, epoch):
        self.at = epoch

    def epoch(self, done):
        if done.epoch == self.at:
            raise Interrupted


@pytest.fixture(scope="module")
def recipe(tiny_recipe):
    return read_recipe(tiny_recipe)


@pytest.fixture
def engine():
    return Engine("cpu")


def same_model(a, b):
    first, second = (load_file(path / "model.safetensors") for path in (a, b))
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_training_leaves_what_the_next_verbs_need(tiny_run):
    names = {path.name for path in tiny_run.iterdir()}
    assert names == {
        "MANIFEST.sha256",
        "calibration.json",
        "environment.json",
        "history.csv",
        "model-card.md",
        "model.safetensors",
        "recipe.toml",
        "snapshots.npz",
        "training-images.sha256",
        "training.safetensors",
    }
    run = Run.open(tiny_run)
    assert [row["epoch"] for row in run.history] == ["1", "2"]
    assert run.snapshots["epochs"].tolist() == [1, 2]
    assert run.snapshots["test"].shape == (2, 16)
    assert run.environment.splits["train"] == SplitSize(normal=24, anomalous=0)
    assert "not a medical device" in (tiny_run / "model-card.md").read_text()


def test_thresholds_come_from_healthy_validation_images(recipe, tiny_run):
    """An anomalous one would raise them, and anomalies would be missed."""
    detector = Detector.load(tiny_run, device="cpu", backend="torch")
    validation = recipe.data.load(recipe.method.size).validation
    assert (len(validation), len(validation.normals)) == (24, 12)
    scores = detector.score(validation.normals.pixels)
    assert detector.calibration.heldout == 12
    assert detector.calibration.heldout_scores == pytest.approx(np.sort(scores))


def test_a_training_that_failed_is_resumed_to_the_same_run(recipe, tiny_run, tmp_path, engine):
    out = tmp_path / "run"
    always = recipe.with_settings(["method.epochs=4", "train.save_minutes=0"])
    train_run(always, tmp_path / "whole", engine=engine)
    with pytest.raises(Interrupted):
        train_run(always, out, engine=engine, monitor=StopAt(3))
    assert [row["epoch"] for row in Run(out).history] == ["1", "2", "3"]
    assert Run(out).load_state()["epoch"] == 2
    train_run(recipe, out, engine=engine, resume=True)
    assert same_model(out, tmp_path / "whole")
    resumed, whole = Run(out), Run(tmp_path / "whole")
    assert [row["epoch"] for row in resumed.history] == ["1", "2", "3", "4"]
    drop = ("seconds", "images_per_second")
    for a, b in zip(resumed.history, whole.history, strict=True):
        assert {k: v for k, v in a.items() if k not in drop} == {
            k: v for k, v in b.items() if k not in drop
        }
    assert resumed.snapshots["epochs"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(resumed.snapshots["test"], whole.snapshots["test"])
    assert not (out / "resume.pt").exists()


def test_snapshots_since_the_state_are_made_anew(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    splits = recipe.data.load(recipe.method.size)
    scores = {"validation": np.zeros((3, 24)), "test": np.zeros((3, 16))}
    run.save_snapshots({"epochs": np.array([1, 2, 3]), **scores})
    method = Squid(recipe.method).eval()
    Recorder(run, splits, recipe, Monitor()).snapshot(2, method)
    assert run.snapshots["epochs"].tolist() == [1, 2]
    assert run.snapshots["test"][0].any() == np.False_
    assert run.snapshots["test"][1].all()


def test_snapshot_scores_are_standardised_by_training_images(recipe):
    splits, method = recipe.data.load(recipe.method.size), Squid(recipe.method).eval()
    training, other = splits.train.pixels, splits.test.pixels
    scores = standardised_scores(method, recipe, training, {"same": training, "other": other})
    assert (scores["same"].mean(), scores["same"].std()) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert scores["other"].std() != pytest.approx(1.0, abs=1e-3)


def test_a_finished_run_is_not_resumed(recipe, tiny_run, engine):
    with pytest.raises(RunError, match="is already finished: use it with squid evaluate"):
        train_run(recipe, tiny_run, engine=engine, resume=True)


def test_a_run_is_not_replaced_unasked(recipe, tiny_run, engine):
    with pytest.raises(RunError, match="already holds a run"):
        train_run(recipe, tiny_run, engine=engine)


def test_data_that_cannot_be_read_leaves_no_folder(recipe, tmp_path, engine):
    missing = recipe.with_settings([f"data.source={tmp_path / 'none.npz'}"])
    with pytest.raises(DataError):
        train_run(missing, tmp_path / "run", engine=engine)
    assert not (tmp_path / "run").exists()


def test_divergence_keeps_the_last_good_state(recipe, tmp_path, engine, monkeypatch):
    out, original, calls = tmp_path / "run", Squid.stages, [0]

    def spoiled(self):
        from dataclasses import replace

        (stage,) = original(self)
        first, *rest = stage.objectives

        def loss(batch, shared):
            calls[0] += 1
            scale = float("nan") if calls[0] > 3 else 1.0  # in the second epoch of three steps
            return {name: scale * term for name, term in first.loss(batch, shared).items()}

        return (replace(stage, objectives=(replace(first, loss=loss), *rest)),)

    monkeypatch.setattr(Squid, "stages", spoiled)
    settings = recipe.with_settings(["train.save_minutes=0"])
    with pytest.raises(DivergedError, match=r"is nan in epoch 2 .*squid train --resume .*run$"):
        train_run(settings, out, engine=engine)
    state = Run(out).load_state()
    assert (state["epoch"], state["step"]) == (1, 0)
    assert all(torch.isfinite(value).all() for value in state["method"].values())
    assert [row["epoch"] for row in Run(out).history] == ["1"]
    monkeypatch.undo()
    train_run(settings, out, engine=engine, resume=True)
    assert [row["epoch"] for row in Run(out).history] == ["1", "2"]


def test_several_seeds_are_several_runs(recipe, tmp_path, engine):
    splits = recipe.data.load(recipe.method.size)
    quick = recipe.with_settings(["method.epochs=1", "seed=3"])
    options = {"engine": engine, "monitor": Monitor(), "splits": splits}
    folders = train_seeds(quick, tmp_path, 2, **options)
    assert [folder.name for folder in folders] == ["seed-3", "seed-4"]
    assert [Run(folder).recipe.seed for folder in folders] == [3, 4]
    assert not same_model(*folders)
    written = [(folder / "model.safetensors").stat().st_mtime_ns for folder in folders]
    train_seeds(quick, tmp_path, 2, **options)
    assert written == [(f / "model.safetensors").stat().st_mtime_ns for f in folders]


def test_own_images_are_enough(recipe, tmp_path):
    images = recipe.data.load(48).train.pixels[:, 0].numpy()
    with pytest.warns(CalibrationNote, match="2 held-out healthy images cannot support"):
        detector = fit(images, recipe=recipe, out=tmp_path / "run", device="cpu")
    assert detector.calibration.heldout == 2
    assert "it takes 9" in (tmp_path / "run/model-card.md").read_text()
    scores = detector.score(images[:3])
    np.testing.assert_allclose(Detector.load(tmp_path / "run").score(images[:3]), scores, rtol=1e-5)


def test_own_images_without_a_meaningful_score_are_not_trained_on(recipe, monkeypatch):
    monkeypatch.setattr("squid.training.fit_detector", lambda recipe, splits, **_: splits)
    images = [*recipe.data.load(48).train.pixels[:, 0].numpy(), np.zeros((60, 60)), np.eye(9)]
    splits = fit(images, recipe=recipe, device="cpu")
    count = len(images)
    assert len(splits.train) + len(splits.validation) == count - 2
    assert splits.warnings == (
        f"Left out: image {count - 2}: all pixels have one gray value.",
        f"Left out: image {count - 1}: 9 x 9 pixels, fewer than 16 a side.",
    )


def test_without_a_recipe_the_default_for_radiographs_is_trained(
    recipe, tmp_path, monkeypatch, tiny_fusion
):
    assert default_recipe(tmp_path, "cpu").method.size == 64
    monkeypatch.setattr(
        "squid.training.default_recipe",
        lambda folder, device: default_recipe(folder, device).with_settings([tiny_fusion]),
    )
    images = recipe.data.load(48).train.pixels[:, 0].numpy()
    with pytest.warns(CalibrationNote):
        detector = fit(images, device="cpu")
    assert detector.recipe.method.name == "fusion"
    assert detector.score(images[:2]).shape == (2,)
