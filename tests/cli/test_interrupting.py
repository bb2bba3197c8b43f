"""Ctrl-C and SIGTERM, at any moment of any verb: one sentence, and nothing half written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from squid import training
from squid.run import Run


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """terminated(owner, name): SIGTERM arrives where that function is called."""

    def terminated(owner: Any, name: str) -> None:
        def stop(*_: Any, **__: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

        monkeypatch.setattr(owner, name, stop)

    return terminated


@pytest.mark.parametrize("verb", ["evaluate", "report", "calibrate", "explain", "score"])
def test_every_verb_ends_with_a_sentence(
    squid: Any, run: Path, images: Path, terminated: Any, verb: str
) -> None:
    further: dict[str, list[object]] = {
        "calibrate": [images, "--name", "site", "--few"], "explain": [images],
        "score": [images], "evaluate": [], "report": [],
    }  # fmt: skip
    terminated(Run, "load_method")
    before = signal.getsignal(signal.SIGTERM)
    assert squid(verb, run, *further[verb], "--device", "cpu") == (130, "", "Interrupted.\n")
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_that_is_being_written_is_not_left_behind(
    squid: Any, run: Path, terminated: Any
) -> None:
    there = {path.name for path in run.iterdir()}
    terminated(os, "replace")
    code, _, err = squid("evaluate", run, "--device", "cpu")
    assert (code, err) == (130, "Interrupted.\n")
    assert {path.name for path in run.iterdir()} == there


def test_the_end_of_a_training_says_how_to_go_on(
    squid: Any, tiny_recipe: Path, tmp_path: Path, terminated: Any
) -> None:
    out = tmp_path / "run"
    terminated(Run, "finish")
    code, _, err = squid("train", tiny_recipe, "--out", out, "--device", "cpu")
    assert code == 130
    assert err.endswith(f"Interrupted. Go on with: squid train --resume {out}\n")
    assert not Run(out).finished


def test_before_a_training_has_a_folder_there_is_nothing_to_go_on_with(
    squid: Any, tiny_recipe: Path, tmp_path: Path, terminated: Any
) -> None:
    terminated(training, "check_batches")
    words = ("train", tiny_recipe, "--out", tmp_path / "run", "--device", "cpu")
    code, _, err = squid(*words)
    assert (code, err.splitlines()[-1]) == (130, "Interrupted.")
    assert not (tmp_path / "run").exists()


def test_a_real_signal_ends_a_real_process(run: Path, images: Path, tmp_path: Path) -> None:
    """While it waits for a list of images from a pipe."""
    os.mkfifo(tmp_path / "list")
    words = ["score", str(run), "--list", str(tmp_path / "list"), "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "squid", *words], stderr=subprocess.PIPE, text=True
    )
    pipe = opened(tmp_path / "list", process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    os.close(pipe)
    assert (process.returncode, err) == (130, "Interrupted.\n")


def opened(pipe: Path, process: "subprocess.Popen[str]") -> int:
    """The end of a pipe to write to, as soon as the process has opened the other one."""
    while process.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"it ended by itself: {process.communicate()}")
