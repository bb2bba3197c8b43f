"""The evaluation of a run: every selection at both thresholds, kept in the run folder."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from squid.data.pixels import add_noise
from squid.detector import Detector
from squid.errors import DataError
from squid.evaluation.confounds import what_it_follows
from squid.evaluation.evaluate import evaluate_detector, evaluate_run, read_evaluations
from squid.evaluation.metrics import auc
from squid.evaluation.record import Evaluations, Result, read_record
from squid.recipe import read_recipe
from squid.run import Run
from squid.run.manifest import Manifest
from squid.train import Engine
from squid.training import train_run


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def test_the_record_in_the_run_folder_is_what_was_returned(run: Path) -> None:
    record = evaluate_run(run, device="cpu")
    assert read_evaluations(Run(run)) == record
    assert len(record.final.scores) == len(record.images.name) == 16
    assert record.final.digits[0].restoration is not None


def test_every_selection_is_measured_at_both_thresholds(run: Path) -> None:
    record = evaluate_run(run, device="cpu")
    assert list(record.by_selection) == ["final", "best_epoch", "snapshot_mean"]
    for evaluation in record.by_selection.values():
        healthy, best = evaluation.metrics["healthy"], evaluation.metrics["best_accuracy"]
        assert healthy.auc == best.auc
        assert healthy.accuracy.value <= best.accuracy.value
    snapshots = Run(run).snapshots
    assert snapshots is not None
    mean = record.by_selection["snapshot_mean"]
    np.testing.assert_allclose(mean.array, snapshots["test"].mean(0))
    assert mean.auc == pytest.approx(auc(snapshots["test"].mean(0), record.images.labels))


def test_without_snapshots_there_is_the_end_of_training(run: Path) -> None:
    (run / "snapshots.npz").unlink()
    assert list(evaluate_run(run, device="cpu").by_selection) == ["final"]


def test_without_anomalous_validation_images_all_but_the_epoch_is_measured(run: Path) -> None:
    """As for a folder of one's own, whose anomalous images are all for the test."""
    detector, snapshots = Detector.load(run, device="cpu"), Run(run).snapshots
    splits = detector.recipe.data.load(48)
    assert snapshots is not None
    normal = splits.validation.labels == 0
    record = evaluate_detector(
        detector,
        replace(splits, validation=splits.validation.normals),
        snapshots=snapshots | {"validation": snapshots["validation"][:, normal]},
    )
    assert list(record.by_selection) == ["final", "snapshot_mean"]


def test_noisy_test_images_are_read_a_second_time(tiny_recipe: Path, tmp_path: Path) -> None:
    recipe = read_recipe(tiny_recipe, ["train.snapshot_noise=0.3", "method.epochs=1"])
    train_run(recipe, tmp_path / "run", engine=Engine("cpu"))
    record, run = evaluate_run(tmp_path / "run", device="cpu"), Run(tmp_path / "run")
    labels = record.images.labels
    snapshots = run.snapshots
    assert snapshots is not None
    assert snapshots["noisy"].shape == snapshots["test"].shape
    mean = record.by_selection["snapshot_mean"].noisy_auc
    assert mean is not None
    assert mean.value == pytest.approx(auc(snapshots["noisy"].mean(0), labels))
    # The end of training by the detector itself, on the very same noise.
    noisy = add_noise(recipe.data.load(48).test.pixels, 0.3)
    final = Detector.load(tmp_path / "run", device="cpu").score(noisy)
    assert record.final.noisy_auc is not None
    assert record.final.noisy_auc.value == pytest.approx(auc(final, labels))
    assert not np.allclose(final, record.final.array)


def test_other_data_are_evaluated_and_not_kept(run: Path) -> None:
    evaluate_run(run, device="cpu")
    kept = (run / "metrics.json").read_bytes()
    other = evaluate_run(run, device="cpu", settings=["data.seed=7"])
    assert (run / "metrics.json").read_bytes() == kept
    assert other.fingerprint != Evaluations.model_validate_json(kept).fingerprint
    assert list(other.by_selection) == ["final"], "snapshots are of the run's own images"


def test_settings_are_chosen_on_validation_images(tiny_run: Path) -> None:
    detector = Detector.load(tiny_run, device="cpu")
    splits = detector.recipe.data.load(48)
    snapshots = Run(tiny_run).snapshots
    assert snapshots is not None
    # Whatever the test images score, a choice must not depend on it.
    blind = {**snapshots, "test": np.full_like(snapshots["test"], np.nan)}
    record = evaluate_detector(detector, splits, snapshots=blind, split="validation")
    assert record.split == "validation"
    assert record.images.name == splits.validation.names
    np.testing.assert_allclose(record.final.array, detector.score(splits.validation.pixels))
    # An epoch that labels of these very images choose is no measure of the setting.
    assert list(record.by_selection) == ["final", "snapshot_mean"]
    mean = np.asarray(snapshots["validation"], np.float64).mean(axis=0)
    np.testing.assert_allclose(record.by_selection["snapshot_mean"].array, mean)


def test_data_that_changed_is_refused(run: Path) -> None:
    changed = Run(run).recipe.with_settings(["data.seed=7"])
    (run / "recipe.toml").write_text(changed.to_toml())
    Manifest(run).add("recipe.toml")
    with pytest.raises(DataError, match="changed since its training"):
        evaluate_run(run, device="cpu")


def test_another_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for text in ("{}", "[1]", "not json", json.dumps({"section": 3})):
        path.write_text(text)
        with pytest.raises(DataError, match=r"result\.json is damaged or of another .*; make it"):
            read_record(Result, path)
    with pytest.raises(DataError, match="cannot be read"):
        read_record(Result, tmp_path / "none.json")


def test_the_model_card_says_what_the_score_follows(run: Path) -> None:
    before = (run / "model-card.md").read_text()
    assert "What this score follows" not in before
    record = evaluate_run(run, device="cpu")
    once = (run / "model-card.md").read_text()
    assert once.startswith(before.rstrip())
    words = " ".join(once.partition("## What this score follows")[2].split())
    assert "On 8 normal and 8 anomalous test images (digitanatomy)" in words
    assert f"an AUC of {100 * record.final.auc:.1f} (" in words
    assert record.final.confounds is not None
    assert what_it_follows(record.final.confounds, record.final.auc) in words


def test_a_second_evaluation_replaces_its_section_of_the_model_card(run: Path) -> None:
    evaluate_run(run, device="cpu")
    once = (run / "model-card.md").read_text()
    evaluate_run(run, device="cpu")
    assert (run / "model-card.md").read_text() == once
    # What a user has added after it stays.
    (run / "model-card.md").write_text(once + "\n## Our site\n\nWard 3 only.\n")
    evaluate_run(run, device="cpu")
    assert (run / "model-card.md").read_text() == once + "\n## Our site\n\nWard 3 only.\n"


def test_other_data_do_not_change_the_model_card(run: Path) -> None:
    before = (run / "model-card.md").read_text()
    evaluate_run(run, device="cpu", settings=["data.seed=7"])
    assert (run / "model-card.md").read_text() == before
