"""Files are there completely or not at all, and a damaged run folder is refused in one sentence."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from squid.detector import Detector
from squid.durable import locked, replacing, write_text
from squid.errors import BusyError, RunError
from squid.run import Run, UnverifiedWarning


def test_a_file_that_was_not_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as partial:
            partial.write_text("half of the ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["kept.json"]


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / "card.md", "text")
    assert stat.S_IMODE((tmp_path / "card.md").stat().st_mode) == 0o644


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("out.json", "out.json.part"):
        (tmp_path / name).symlink_to(victim)
    write_text(tmp_path / "out.json", "new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "out.json").read_text() == "new"
    assert not (tmp_path / "out.json").is_symlink()


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        done.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{handle}')).suffix or 'folder'}")
        fsync(handle)

    def note_rename(source: Path, target: Path) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_rename)
    write_text(tmp_path / "card.md", "text")
    assert done == ["fsync .part", "rename", "fsync folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.json"
    write_text(path, "old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("kept.json", "old")]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def load_unverified(run: Path) -> Detector:
    """With --unverified: the checks behind that of the checksums."""
    with pytest.warns(UnverifiedWarning):
        return Detector.load(Run.open(run, verify=False), device="cpu")


def test_every_file_of_a_run_can_be_read_by_others(tiny_run: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tiny_run.iterdir()}
    assert set(modes.values()) == {0o644}, modes


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(run: Path, value: float) -> None:
    path = run / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key, one in tensors.items() if one.is_floating_point())
    tensors[name].view(-1)[0] = value
    save_file(tensors, path)
    with pytest.raises(RunError, match=rf"is damaged: '{name}' holds values that are not finite"):
        load_unverified(run)


@pytest.mark.parametrize("kind", ["float64", "int64", "complex64", "float8_e4m3fn", "int8", "bool"])
def test_weights_of_another_type_are_refused(run: Path, kind: str) -> None:
    path = run / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key, one in tensors.items() if one.is_floating_point())
    save_file(tensors | {name: tensors[name].float().to(getattr(torch, kind))}, path)
    with pytest.raises(RunError, match=name) as caught:
        load_unverified(run)
    assert "\n" not in str(caught.value)


def test_torn_weights_are_refused(run: Path) -> None:
    path = run / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        load_unverified(run)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": float("nan")},
        {"std": -1.0},
        {"std": float("inf")},
        {"thresholds": {"0.1": float("nan")}},
        {"thresholds": {"1.5": 0.0}},
        {"heldout": -3},
    ],
)
def test_an_impossible_calibration_is_refused(run: Path, change: dict[str, object]) -> None:
    path = run / "calibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=r"calibration\.json is damaged"):
        load_unverified(run)


def test_a_torn_calibration_is_refused(run: Path) -> None:
    (run / "calibration.json").write_text('{"mean": 0.1, "st')
    with pytest.raises(RunError, match=r"calibration\.json is damaged"):
        load_unverified(run)


def test_whole_weights_are_taken(run: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 48, 48), dtype=np.uint8)
    assert np.isfinite(Detector.load(run, device="cpu").score(images)).all()


# Locks


HOLD = """
import sys, time
from pathlib import Path
from squid.durable import locked
with locked(Path(sys.argv[1]), "the table"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock `tmp_path / "lock"`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_is_refused_with_the_first_ones_number(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    reason = f"the table is being written by process {holder.pid}; wait until it ends"
    with pytest.raises(BusyError, match=reason), locked(tmp_path / "lock", "the table"):
        pass


def test_the_lock_of_a_killed_process_is_no_obstacle(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "the table"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    assert not (tmp_path / "lock").exists()


def test_a_lock_does_not_follow_a_planted_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RunError, match="lock is a link, to which nothing is written; remove it"):
        locked(tmp_path / "lock", "the table").__enter__()
    (tmp_path / "lock").unlink()
    os.link(tmp_path / "victim", tmp_path / "lock")
    with pytest.raises(RunError, match="in the place of a lock and is none; remove it"):
        locked(tmp_path / "lock", "the table").__enter__()
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(RunError, match="in the place of a lock and is none; remove it"):
        locked(tmp_path / "lock", "the table").__enter__()
    assert (tmp_path / "victim").read_text() == "precious"
