"""Where a training computes."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_starting_prints_nothing(precision):
    code = f"from squid.train import Engine; Engine('cpu', precision='{precision}').launch()"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
