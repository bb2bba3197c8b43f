"""What tests share: the folder of reference material, and one thread so that results do not depend
on the machine."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from squid import cli
from squid.places import data_folder

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Callable[..., Path]:
    """shared("golden", "windows.npz"): a file or folder of the reference material, which is kept
    outside the project. What is in "data" is looked for in the data folder (SQUID_DATA)."""
    default = Path(__file__).resolve().parents[2] / "shared"
    root = Path(os.environ.get("SQUID_SHARED", default))
    data = data_folder()

    def find(kind: str, *names: str) -> Path:
        path = (data if kind == "data" else root / kind).joinpath(*names)
        if not path.exists():
            pytest.skip(f"no reference material at {path} (set SQUID_SHARED or SQUID_DATA)")
        return path

    return find


TINY = Path(__file__).with_name("tiny.toml")


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that trains in a second."""
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_bytes(TINY.read_bytes())
    return path


@pytest.fixture(scope="session")
def tiny_run(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of that recipe, not to be written to."""
    from squid.recipe import read_recipe
    from squid.train import Engine
    from squid.training import train_run

    out = tmp_path_factory.mktemp("runs") / "tiny"
    train_run(read_recipe(tiny_recipe), out, engine=Engine("cpu"))
    return out


@pytest.fixture
def tiny_fusion() -> str:
    """A setting that lets the default for radiographs train in a second."""
    small = "epochs = 1, batch_size = 8"
    auto_encoder = f'{{ name = "ae_u", {small}, channels = [4, 4], hidden = 8, latent = 2 }}'
    lesions = f'{{ name = "synthetic_lesions", {small}, channels = [4, 4] }}'
    return f"method.parts=[{auto_encoder}, {lesions}]"


@pytest.fixture
def squid(monkeypatch, capsys):
    """squid("verb", ...) -> exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def squid(*words):
        monkeypatch.setattr(sys, "argv", ["squid", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return squid


@pytest.fixture
def refused(squid):
    """refused("verb", ...): the one sentence it is refused with."""

    def refused(*words):
        code, out, err = squid(*words)
        assert code == 2
        assert "Traceback" not in out + err
        assert err.startswith("squid: ")
        assert err.count("\n") == 1
        return err.removeprefix("squid: ").strip()

    return refused


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy that may be written to."""
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        pixels = rng.integers(0, 256, (60, 50), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(folder / f"[bold]{i}.png")
    return folder
