"""The checksums of a run folder: what decides its answers is used as it was written, or refused."""

import hashlib
import os
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from squid import inference
from squid.detector import Detector
from squid.errors import BusyError, RunError
from squid.evaluation.evaluate import read_evaluations
from squid.recipe import read_recipe
from squid.run import Run, UnverifiedWarning
from squid.run.manifest import MANIFEST, Manifest
from squid.site import calibrate_site
from squid.train import Engine, Monitor
from squid.training import train_run

IMAGES = np.random.default_rng(0).integers(0, 256, (21, 48, 48), dtype=np.uint8)


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def load(run: Path, **options: Any) -> Detector:
    return Detector.load(run, device="cpu", **options)


def flip(path: Path) -> None:
    """One bit, in a place where no reader would notice."""
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


def test_sha256sum_reads_it(run: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", MANIFEST], cwd=run, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split("\n")[:-1]) == {
        "calibration.json: OK", "model.safetensors: OK", "recipe.toml: OK",
        "training.safetensors: OK", "training-images.sha256: OK",
    }  # fmt: skip


def another_discriminator(path: Path) -> None:
    """Weights that this score does not use: no answer would tell."""
    tensors = load_file(path)
    name = next(key for key in tensors if key.startswith("discriminator."))
    save_file({**tensors, name: tensors[name] * 2}, path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.safetensors", flip),
        ("model.safetensors", another_discriminator),
        ("calibration.json", lambda path: path.write_text(path.read_text() + "\n")),
        ("recipe.toml", lambda path: path.write_text(path.read_text() + "# a note\n")),
    ],
)
def test_a_changed_file_is_refused_in_one_sentence_unless_asked_for(
    run: Path, squid: Any, refused: Any, images: Path, name: str, change: Callable[[Path], object]
) -> None:
    change(run / name)
    said = refused("score", run, images, "--device", "cpu")
    assert said == (
        f"{run / name} was changed or damaged: its checksum is not that in MANIFEST.sha256; "
        "restore it, or go on with --unverified."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = squid("score", run, images, "--device", "cpu", "--unverified")
    assert code == 0
    assert len(out.splitlines()) == 4
    assert f"note: {run / name} was changed or damaged" in err


COVERED = ("MANIFEST.sha256", "recipe.toml", "model.safetensors", "calibration.json", "model.onnx")
INSTEAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "a terabyte": lambda path: (path.touch(), os.truncate(path, 2**40)),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize("kind", INSTEAD)
def test_what_no_training_writes_is_refused_unopened(
    run: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / name).unlink(missing_ok=True)
    INSTEAD[kind](run / name)
    opened = watch_opened(run, monkeypatch)
    for verify in (True, False):
        if name == MANIFEST and not verify:
            with pytest.warns(UnverifiedWarning):
                load(Run.open(run, verify=False))
            continue
        with pytest.raises(RunError) as caught:
            load(Run.open(run, verify=verify))
        assert "\n" not in str(caught.value)
    assert name not in opened


@pytest.mark.parametrize("name", ["metrics.json", "history.csv", "environment.json"])
@pytest.mark.parametrize("kind", INSTEAD)
def test_so_are_records(run: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / name).unlink(missing_ok=True)
    INSTEAD[kind](run / name)
    opened = watch_opened(run, monkeypatch)
    one = Run.open(run)
    with pytest.raises(RunError):
        _ = read_evaluations(one), one.history, one.environment
    assert name not in opened


def watch_opened(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files in the folder, each time one is opened by Python."""
    opened: list[str] = []
    usual = Path.open

    def note(path: Path, *words: Any, **options: Any) -> Any:
        opened.append(path.name)
        return usual(path, *words, **options)

    monkeypatch.setattr(Path, "open", note)
    return opened


def test_each_file_is_hashed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "model.onnx").write_bytes(b"a graph that is not looked into")
    (one := Run.open(run)).keep_onnx()
    opened = SimpleNamespace(weights=one.digest, check_scores=lambda *_: None)
    monkeypatch.setattr(inference, "OnnxBackend", lambda path: opened)
    assert one.digest
    hashed: list[str] = []
    usual = hashlib.file_digest

    def note(file: Any, kind: str) -> Any:
        hashed.append(Path(file.name).name)
        return usual(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", note)
    detector = load(run, backend="onnx")
    assert detector.digest
    assert sorted(hashed) == [
        "calibration.json", "model.onnx", "model.safetensors", "recipe.toml",
    ]  # fmt: skip


def test_a_file_that_changes_is_hashed_again(run: Path) -> None:
    one = Run.open(run)
    before = one.digest
    flip(run / "model.safetensors")
    assert one.digest != before


@pytest.mark.parametrize("verb", ["evaluate", "explain", "report", "calibrate", "watch"])
def test_every_verb_that_scores_refuses_it(
    run: Path, refused: Any, images: Path, verb: str
) -> None:
    flip(run / "model.safetensors")
    further: dict[str, list[object]] = {
        "explain": [images], "calibrate": [images, "--name", "site", "--few"],
        "watch": [images, "--out", images.parent / "results", "--once"],
        "evaluate": [], "report": [],
    }  # fmt: skip
    assert "was changed or damaged" in refused(verb, run, *further[verb], "--device", "cpu")


def test_a_run_without_a_manifest_is_refused(run: Path) -> None:
    (run / MANIFEST).unlink()
    with pytest.raises(RunError, match=r"has no MANIFEST\.sha256, so its files cannot be checked"):
        load(run)
    with pytest.warns(UnverifiedWarning, match="used unverified"):
        load(Run.open(run, verify=False))  # type: ignore[arg-type]
    (run / MANIFEST).write_text("\x00 not a line")
    with pytest.raises(RunError, match=r"MANIFEST\.sha256 is damaged"):
        load(run)


def test_a_site_is_added_and_checked_for_itself(run: Path) -> None:
    calibrate_site(run, IMAGES, name="site", device="cpu")
    digest = hashlib.sha256((run / "calibrations/site.json").read_bytes()).hexdigest()
    assert Manifest(run).read()["calibrations/site.json"] == digest
    load(run, calibration="site")
    shutil.copy(run / "calibrations/site.json", run / "calibrations/planted.json")
    with pytest.raises(RunError, match=r"planted\.json is not in MANIFEST\.sha256"):
        load(run, calibration="planted")
    (run / "calibrations/site.json").write_text("{}")
    with pytest.raises(RunError, match=r"site\.json was changed or damaged"):
        load(run, calibration="site")
    load(run)  # which does not use it
    calibrate_site(run, IMAGES, name="site", device="cpu", overwrite=True)
    load(run, calibration="site")


def test_calibrations_go_with_their_weights_and_lead_nowhere_else(run: Path) -> None:
    recipe = read_recipe(run / "recipe.toml")
    calibrate_site(run, IMAGES, name="site", device="cpu")
    Run.create(run, recipe, overwrite=True)
    assert not list((run / "calibrations").iterdir())
    (run / "calibrations").rmdir()
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.json").write_text("{}")
    (run / "calibrations").symlink_to(elsewhere)
    Run.create(run, recipe, overwrite=True)
    with pytest.raises(RunError, match="is a link"):
        Run(run).check_site("site", overwrite=False)
    assert [path.name for path in elsewhere.iterdir()] == ["mine.json"]


def test_a_kill_before_the_last_file_leaves_a_run_to_go_on_with(
    tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run always has its manifest: the calibration is written after it."""
    whole, out, recipe = tmp_path / "whole", tmp_path / "run", read_recipe(tiny_recipe)
    train_run(recipe, whole, engine=Engine("cpu"))

    def killed(self: Run, name: str, text: str) -> None:
        if name == "calibration.json":
            raise KeyboardInterrupt
        kept(self, name, text)

    kept = Run._write_text
    monkeypatch.setattr(Run, "_write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        train_run(recipe, out, engine=Engine("cpu"))
    monkeypatch.setattr(Run, "_write_text", kept)
    with pytest.raises(RunError, match="its training is not finished"):
        load(out)
    train_run(recipe, out, engine=Engine("cpu"), resume=True)
    assert (out / MANIFEST).read_bytes() == (whole / MANIFEST).read_bytes()
    load(out)


# One writer


class Meanwhile(Monitor):
    """Runs something in the middle of a training."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def epoch(self, done: object) -> None:
        if done.epoch == 1:  # type: ignore[attr-defined]
            # Another thread, as another process would: `Engine` may not be launched twice in one.
            thread = threading.Thread(target=self.call)
            thread.start()
            thread.join()


def test_a_folder_has_one_training(tiny_recipe: Path, tmp_path: Path) -> None:
    out, recipe, said = tmp_path / "run", read_recipe(tiny_recipe), []

    def go_on() -> None:
        try:
            train_run(recipe, out, engine=Engine("cpu"), resume=True)
        except BusyError as error:
            said.append(str(error))

    train_run(recipe, out, engine=Engine("cpu"), monitor=Meanwhile(go_on))
    (sentence,) = said
    assert sentence.startswith(f"{out} is being written by process ")
    assert not (out / ".lock").exists()
    assert [row["epoch"] for row in Run(out).history] == ["1", "2"]


def test_the_next_writer_removes_what_a_killed_one_left(run: Path) -> None:
    (run / "calibrations").mkdir()
    left = (
        ".resume.pt.ab_d3f8h.part",
        ".history.csv.12345678.part",
        "calibrations/.a.json.zzzzzzzz.part",
    )
    # Not under the lock, of another length, or not ours.
    others = (
        ".metrics.json.12345678.part",
        ".resume.pt.1234.part",
        "mine.part",
        ".mine.12345678.part",
    )
    for name in (*left, *others):
        (run / name).write_text("half of it")
    with Run(run).only_writer():
        assert not any((run / name).exists() for name in left)
    assert all((run / name).exists() for name in others)


def test_what_a_killed_writer_left_elsewhere_stays(run: Path) -> None:
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".a.json.12345678.part").write_text("not ours")
    (run / "calibrations").symlink_to(elsewhere)
    (run / ".resume.pt.12345678.part").mkdir()
    with Run(run).only_writer():
        assert (elsewhere / ".a.json.12345678.part").exists()


def test_a_folder_that_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="refused"), Run(tmp_path / "new" / "run").only_writer():
        raise ValueError("refused")
    assert not (tmp_path / "new" / "run").exists()
