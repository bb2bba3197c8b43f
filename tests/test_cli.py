"""Every verb through the command: what it prints, and one sentence and exit code 2 for a
mistake."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from safetensors.torch import load_file

from squid.evaluation.selection import select

SQUID = Path(sys.executable).with_name("squid")
VERBS = {
    "benchmark": "method",
    "calibrate": "thresholds",
    "compare": "paired test",
    "convert": "checkpoints",
    "data check": "what it holds",
    "data show": "splits",
    "doctor": "versions",
    "evaluate": "metric",
    "explain": "anomalous",
    "report": "HTML",
    "score": "Score images",
    "train": "Train a recipe",
    "watch": "comes into a folder",
}


def test_the_installed_command_knows_its_version():
    done = subprocess.run([SQUID, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.1.0"


def test_help_names_every_verb(squid):
    code, out, _ = squid("--help")
    assert code == 0
    assert all(verb.split()[0] in out for verb in VERBS)
    assert "not a medical device" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_does(squid, verb):
    code, out, _ = squid(*verb.split(), "--help")
    assert code == 0
    assert VERBS[verb] in out


def test_an_installed_command_prints_no_traceback(tmp_path):
    done = subprocess.run(
        [SQUID, "train", tmp_path / "none.toml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"squid: There is no recipe {tmp_path / 'none.toml'}.\n"


# Training


def test_train_evaluate_and_report(squid, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    code, out, _ = squid("train", tiny_recipe, "--out", run, "--device", "cpu")
    assert code == 0
    assert "fingerprint" in out
    assert f"next: squid evaluate {run}" in out
    code, out, _ = squid("evaluate", run, "--device", "cpu")
    assert code == 0
    assert "10 % false alarms on held-out healthy images" in out
    code, out, _ = squid("report", run, "--device", "cpu")
    assert code == 0
    assert (run / "report.html").is_file()


def test_a_folder_of_images_is_trained_with_the_default(squid, refused, tiny_fusion, tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "my-images" / "normal"
    folder.mkdir(parents=True)
    for number in range(60):
        pixels = rng.integers(0, 256, (64, 64), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(folder / f"{number}.png")
    words = ("train", folder.parent, "--out", tmp_path / "run", "--device", "cpu")
    assert "do not fill one batch of 64" in refused(*words)
    code, out, _ = squid(*words, "--set", tiny_fusion)
    assert code == 0
    assert "fusion at 64 pixels" in out
    assert squid("score", tmp_path / "run", folder, "--device", "cpu")[0] == 0
    assert "There is no image" in refused("train", tmp_path / "run", "--out", tmp_path / "b")


def test_several_seeds(squid, tiny_recipe, tmp_path):
    words = ("--device", "cpu", "--seeds", "2", "--set", "method.epochs=1")
    code, _, _ = squid("train", tiny_recipe, "--out", tmp_path / "runs", *words)
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["seed-0", "seed-1"]


def test_mistakes_in_training(refused, tiny_recipe, run, tmp_path):
    out = ("--out", tmp_path / "new", "--device", "cpu")
    assert "did you mean 'slots'?" in refused("train", tiny_recipe, *out, "--set", "method.slot=1")
    assert "is not an override" in refused("train", tiny_recipe, *out, "--set", "method.slots")
    assert "already holds a run" in refused("train", tiny_recipe, "--out", run)
    assert "is already finished" in refused("train", "--resume", run)
    assert "is not a run folder" in refused("train", "--resume", tmp_path)
    assert "Give a recipe to train, or --resume" in refused("train")
    assert "leave --set" in refused("train", "--resume", run, "--set", "method.slots=3")
    graph = ("--set", "train.cuda_graph=true")
    assert "cuda_graph needs a CUDA device" in refused("train", tiny_recipe, *out, *graph)
    assert (
        "No CUDA device is here"
        in refused("train", tiny_recipe, "--out", tmp_path / "gpu", "--device", "cuda")
        if not torch.cuda.is_available()
        else True
    )


def write_folder(root, splits):
    rng = np.random.default_rng(0)
    for place, count in splits.items():
        (root / place).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (48, 48), dtype=np.uint8)
            PIL.Image.fromarray(pixels).save(root / place / f"{i}.png")


@pytest.fixture
def folder_recipe(tiny_recipe, tmp_path):
    text = tiny_recipe.read_text()
    method = text[text.index("[method]") :]
    path = tmp_path / "folder.toml"
    path.write_text(f'[data]\nname = "folder"\nroot = "{tmp_path / "own"}"\n{method}')
    return path


def test_anomalous_training_images_are_left_out_unless_asked_for(
    squid, refused, folder_recipe, tmp_path
):
    write_folder(
        tmp_path / "own",
        {"train/normal": 12, "train/abnormal": 3, "test/normal": 2, "val/normal": 2},
    )
    code, out, _ = squid("data", "show", folder_recipe, "--format", "json")
    found = json.loads(out)
    assert (code, found["splits"][0]["anomalous"]) == (0, 0)
    assert "3 anomalous training images were left out." in found["warnings"]
    asked = ("data", "show", folder_recipe, "--format", "json", "--set")
    _, out, _ = squid(*asked, "data.contamination=0.15")
    assert json.loads(out)["splits"][0]["anomalous"] == 2
    assert "needs 5 anomalous training images" in refused(*asked, "data.contamination=0.4")


def test_an_empty_folder_is_refused(refused, folder_recipe, tmp_path):
    (tmp_path / "own").mkdir()
    assert "There is no image" in refused("data", "show", folder_recipe)


def test_benchmarks_and_recipes_are_not_confused(refused, tiny_recipe, tmp_path):
    benchmark = tmp_path / "benchmark.toml"
    benchmark.write_text('[rows.vae]\n[sections.digits]\ndata = { name = "digitanatomy" }\n')
    assert "holds a benchmark; run it with: squid benchmark" in refused("train", benchmark)
    assert "holds a recipe; train it with: squid train" in refused("benchmark", tiny_recipe)


def test_a_missing_folder_is_refused(refused, folder_recipe, tmp_path):
    assert str(tmp_path / "own") in refused("data", "show", folder_recipe)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_gives_the_same_weights(squid, tiny_recipe, tmp_path, sent):
    """The real command, interrupted by a real signal in the middle of the training."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    changes = ("method.epochs=12", "train.snapshot_every=100", "data.train=80")
    words = [word for change in changes for word in ("--set", change)]
    assert squid("train", tiny_recipe, "--out", whole, "--device", "cpu", *words)[0] == 0
    process = subprocess.Popen(
        [SQUID, "train", tiny_recipe, "--out", run, "--device", "cpu", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_history(run, process)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.strip() == f"Interrupted and saved. Go on with: squid train --resume {run}"
    assert (run / "resume.pt").is_file()
    assert not (run / "model.safetensors").exists()
    assert squid("train", "--resume", run, "--device", "cpu")[0] == 0
    first, second = (load_file(path / "model.safetensors") for path in (whole, run))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with (run / "history.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == list(range(1, 13))


def wait_for_history(run, process):
    while process.poll() is None:
        if (run / "history.csv").is_file():
            return
        time.sleep(0.01)
    raise AssertionError(f"training ended by itself: {process.communicate()}")


def test_a_refused_training_leaves_no_folder(refused, squid, tiny_recipe, tmp_path):
    words = ("train", tiny_recipe, "--out", tmp_path / "run", "--device", "cpu")
    large = ("--set", "method.batch_size=99")
    assert "do not fill one batch of 99" in refused(*words, *large)
    assert not (tmp_path / "run").exists()
    assert squid(*words, "--set", "method.epochs=1")[0] == 0


# Explaining


def test_explain_writes_a_picture_of_every_image(squid, run, images, tmp_path):
    (images / "broken.png").write_bytes(b"no image")
    words = ("--out", tmp_path / "maps", "--values", "npy", "--device", "cpu")
    code, out, err = squid("explain", run, images, *words)
    assert code == 3
    assert "broken.png is not a readable image" in err
    written = sorted((tmp_path / "maps").glob("*.png"))
    assert [str(path) for path in written] == sorted(out.split())
    assert len(written) == len(list(images.iterdir())) - 1
    assert all(np.load(path.with_suffix(".npy")).dtype == np.float32 for path in written)
    code, _, err = squid("explain", run, images, "--kind", "magic")
    assert code == 2
    assert "'gradcam'" in err


def test_help_has_an_example_and_choices_and_no_types_of_python(squid):
    for verb in VERBS:
        _, out, _ = squid(*verb.split(), "--help")
        assert not re.search(r"<(bool|path|list|str|float|int)\b", out), verb
        assert "Example: squid" in out
    assert "<bool>" not in squid("--help")[1] + squid("data", "--help")[1]
    assert "<method|gradcam|residual|memory>" in squid("explain", "--help")[1]


# Evaluation, data, calibration


def test_metrics_as_json_and_csv(squid, run):
    _, out, _ = squid("evaluate", run, "--format", "json", "--device", "cpu")
    result = json.loads(out)
    assert 0 <= result["metrics"]["auc"]["value"] <= 1
    assert result["metrics"]["threshold"]["kind"] == "healthy"
    words = ("--format", "csv", "--threshold", "best_accuracy", "--device", "cpu")
    _, out, _ = squid("evaluate", run, *words)
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(out))}
    auc = rows["auc"]
    assert float(auc["low"]) <= float(auc["value"]) <= float(auc["high"])


def test_the_papers_threshold_is_called_optimistic(squid, run):
    for words in (["--threshold", "best_accuracy"], ["--selection", "best_epoch"]):
        _, out, _ = squid("evaluate", run, *words, "--device", "cpu")
        assert "best accuracy on these very images (as in the paper, optimistic)" in out
    assert "epoch by labels" in out


def test_looking_at_one_threshold_does_not_replace_the_other(squid, run):
    squid("evaluate", run, "--device", "cpu")
    kept = (run / "metrics.json").read_bytes()
    squid("evaluate", run, "--threshold", "best_accuracy", "--device", "cpu")
    assert (run / "metrics.json").read_bytes() == kept


def test_a_selection_without_snapshots_is_refused(refused, run):
    (run / "snapshots.npz").unlink()
    words = ("evaluate", run, "--selection", "best_epoch", "--device", "cpu")
    assert "train.snapshot_every" in refused(*words)


def test_an_epoch_is_chosen_by_labels_that_are_there(refused, run, monkeypatch):
    def without_anomalous(snapshots, labels, rate):
        return select(snapshots, np.zeros_like(labels), rate)

    monkeypatch.setattr("squid.evaluation.evaluate.select", without_anomalous)
    message = refused("evaluate", run, "--selection", "best_epoch", "--device", "cpu")
    assert "no anomalous validation images to choose an epoch by" in message


def test_data_as_json_and_csv(squid, tiny_recipe):
    _, out, _ = squid("data", "show", tiny_recipe, "--format", "json")
    result = json.loads(out)
    assert [row["split"] for row in result["splits"]] == ["train", "validation", "test"]
    assert len(result["fingerprint"]) == 16
    _, out, _ = squid("data", "show", tiny_recipe, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["normal"]) for row in rows] == [24, 12, 8]


def test_a_begun_run_cannot_be_used_yet(refused, run, images):
    (run / "calibration.json").unlink()
    assert "its training is not finished" in refused("evaluate", run)
    (run / "model.safetensors").unlink()
    assert "finish it with --resume" in refused("score", run, images)


def test_help_and_mistakes_do_not_wait_for_torch():
    script = "import sys, squid.cli; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
