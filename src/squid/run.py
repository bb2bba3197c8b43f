"""The run folder that a training leaves. It is read and written here only, and nothing else is
needed to use a detector.

recipe.toml          fully resolved         model.safetensors     what scoring needs
calibration.json     healthy scores         training.safetensors  the rest (a teacher)
calibrations/        of other sites, by `calibrate`
metrics.json         of `evaluate`          history.csv           losses and rates per epoch
environment.json     versions, seed, data   snapshots.npz         scores at every snapshot
resume.pt            while training         report.html, figures/ of `report`
model-card.md        what to know of it     model.onnx            of `score --backend onnx`
"""

import csv
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from squid.calibration import Calibration
from squid.config import Config
from squid.data.image_set import Splits
from squid.durable import replacing, write_text
from squid.errors import RunError
from squid.methods import build
from squid.methods.base import Method
from squid.nn.conv import at_least_float32
from squid.recipe import Recipe, read_recipe
from squid.train.loop import Epoch, State
from squid.version import __version__

C = TypeVar("C", bound=Config)

FILES = (
    "recipe.toml",
    "model.safetensors",
    "training.safetensors",
    "calibration.json",
    "metrics.json",
    "history.csv",
    "environment.json",
    "snapshots.npz",
    "resume.pt",
    "model-card.md",
    "report.html",
    "model.onnx",
)
"""What a training and the verbs after it write."""


class SplitSize(Config):
    """Images of a split."""

    normal: int
    anomalous: int


class Environment(Config):
    """What it takes to repeat a training, besides its recipe."""

    version: str
    commit: str | None
    python: str
    torch: str
    device: str
    seed: int
    data: str
    """Fingerprint of all images and labels."""
    splits: Mapping[str, SplitSize]


class Run:
    """One run folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._columns: list[str] | None = None  # of history.csv, once this object has written to it

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """A folder that is there and has a recipe."""
        run = cls(path)
        if not (run.path / "recipe.toml").is_file():
            raise RunError(f"{path} is not a run folder: it has no recipe.toml.")
        return run

    @classmethod
    def create(cls, path: Path | str, recipe: Recipe, *, overwrite: bool = False) -> "Run":
        """A new folder; one with a finished or begun training in it is only replaced when asked."""
        run = cls(path)
        run.refuse_begun(overwrite=overwrite)
        run._clear()
        run.path.mkdir(parents=True, exist_ok=True)
        run._write_text("recipe.toml", recipe.resolved().to_toml())
        return run

    def refuse_begun(self, *, overwrite: bool) -> None:
        """An error where a training would be replaced without being asked to."""
        if (self.path / "recipe.toml").exists() and not overwrite:
            raise RunError(
                f"{self.path} already holds a run; choose another --out, add --overwrite to "
                f"replace it, or go on with it by --resume {self.path}."
            )

    def _clear(self) -> None:
        """Removes what a training writes, and nothing a user may have put there."""
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def recipe(self) -> Recipe:
        return read_recipe(self.path / "recipe.toml")

    # Weights

    @property
    def digest(self) -> str:
        """SHA-256 of the weights that score."""
        with (self.path / "model.safetensors").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def save_method(self, method: Method) -> None:
        """What scoring needs, and apart from it what only training needs."""
        state = {name: t.detach().cpu().contiguous() for name, t in method.state_dict().items()}
        apart = {n for n in state if method.training_only and n.startswith(method.training_only)}
        self._save_tensors("model.safetensors", {n: t for n, t in state.items() if n not in apart})
        if apart:
            self._save_tensors("training.safetensors", {n: state[n] for n in apart})

    def load_method(self) -> Method:
        """The trained method, on the CPU and in eval mode."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} is not trained yet; finish it with --resume.")
        method = build(self.recipe.method)
        state = {name: at_least_float32(t) for name, t in _checked_tensors(path).items()}
        method.to(next((t.dtype for t in state.values() if t.is_floating_point()), torch.float32))
        method.restore(state)
        return method.eval()

    @property
    def path_of_onnx(self) -> Path:
        return self.path / "model.onnx"

    @property
    def onnx(self) -> Path | None:
        """The exported model, where there is one and it is not older than the weights."""
        path, weights = self.path_of_onnx, self.path / "model.safetensors"
        fresh = path.is_file() and path.stat().st_mtime_ns >= weights.stat().st_mtime_ns
        return path if fresh else None

    @property
    def finished(self) -> bool:
        return (self.path / "calibration.json").is_file()

    # The state to resume from

    def save_state(self, state: State) -> None:
        with replacing(self.path / "resume.pt") as partial:
            torch.save(state, partial)

    def load_state(self) -> State | None:
        path = self.path / "resume.pt"
        if not path.is_file():
            return None
        state: State = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def drop_state(self) -> None:
        (self.path / "resume.pt").unlink(missing_ok=True)

    # Tables

    def add_history(self, epoch: Epoch) -> None:
        """One line per epoch; stages with other losses widen the table."""
        row: dict[str, str | float] = {
            "stage": epoch.stage,
            "epoch": epoch.epoch,
            **{f"rate.{name}": value for name, value in epoch.rates.items()},
            **epoch.losses,
            "seconds": round(epoch.seconds, 3),
            "images_per_second": round(epoch.images_per_second, 1),
        }
        if self._columns is None or not row.keys() <= set(self._columns):
            # A resumed run repeats the epochs since its state was saved: their lines are replaced.
            here = epoch.stage, str(epoch.epoch)
            rows = list(takewhile(lambda r: (r["stage"], r["epoch"]) != here, self.history))
            self._columns = list(dict.fromkeys([*(rows[0] if rows else ()), *row]))
            self._write_history(self._columns, rows)
        with (self.path / "history.csv").open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, restval="").writerow(row)

    def _write_history(self, columns: list[str], rows: list[dict[str, str]]) -> None:
        with (self.path / "history.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)

    @property
    def history(self) -> list[dict[str, str]]:
        path = self.path / "history.csv"
        if not path.is_file():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def save_snapshots(self, arrays: Mapping[str, np.ndarray]) -> None:
        with replacing(self.path / "snapshots.npz") as partial, partial.open("wb") as file:
            np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]

    @property
    def snapshots(self) -> dict[str, np.ndarray] | None:
        """`epochs` (s,), and per split `validation`, `test`: standardised scores (s, n)."""
        path = self.path / "snapshots.npz"
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    def save_calibration(self, calibration: Calibration) -> None:
        self._write_json("calibration.json", calibration)

    @property
    def calibration(self) -> Calibration:
        return self._read_json("calibration.json", Calibration)

    # Calibrations of sites, beside the run's own

    @property
    def sites(self) -> list[str]:
        """Names of the calibrations in calibrations/."""
        return sorted(path.stem for path in (self.path / "calibrations").glob("*.json"))

    def site_calibration(self, name: str) -> Calibration:
        if name not in self.sites:
            known = f"known: {', '.join(self.sites)}" if self.sites else "there is none yet"
            raise RunError(
                f"{self.path} has no calibration '{name}' ({known}); make it with: "
                f"squid calibrate {self.path} HEALTHY --name {name}"
            )
        return self._read_json(f"calibrations/{name}.json", Calibration)

    def save_site_calibration(
        self, name: str, calibration: Calibration, *, overwrite: bool = False
    ) -> None:
        self.check_site(name, overwrite=overwrite)
        (self.path / "calibrations").mkdir(exist_ok=True)
        self._write_json(f"calibrations/{name}.json", calibration)

    def check_site(self, name: str, *, overwrite: bool) -> None:
        """An error where a calibration of this name cannot be written."""
        # The name becomes that of a file.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name, re.ASCII):
            raise RunError(
                f"'{name}' cannot name a calibration; use letters, digits, '-', '_' and '.'."
            )
        if name in self.sites and not overwrite:
            raise RunError(
                f"{self.path} already has a calibration '{name}'; choose another --name, or add "
                "--overwrite to replace it."
            )

    def save_metrics(self, metrics: Config) -> None:
        self._write_json("metrics.json", metrics)

    def save_environment(self, environment: Environment) -> None:
        self._write_json("environment.json", environment)

    @property
    def environment(self) -> Environment:
        return self._read_json("environment.json", Environment)

    def write_model_card(self, text: str) -> None:
        self._write_text("model-card.md", text)

    # Files

    def _write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text)

    def _write_json(self, name: str, record: Config) -> None:
        self._write_text(name, record.model_dump_json(indent=2) + "\n")

    def _read_json(self, name: str, kind: type[C]) -> C:
        path = self.path / name
        if not path.is_file():
            raise RunError(f"{self.path} has no {name}: its training is not finished.")
        try:
            return kind.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError):
            raise RunError(f"{path} is damaged; restore it or train again.") from None

    def _save_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        with replacing(self.path / name) as partial:
            save_file({key: _narrowed(t) for key, t in tensors.items()}, partial)


def _checked_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, none of which holds a number that is none."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError):
        raise RunError(f"{path} is damaged; restore it or train again.") from None
    for name, values in tensors.items():
        if not torch.isfinite(values).all():
            raise RunError(f"{path} is damaged: '{name}' holds values that are not finite.")
    return tensors


def _narrowed(values: Tensor) -> Tensor:
    """In half the bytes where that loses nothing: features of a bf16 training are such."""
    if values.dtype != torch.float32:
        return values
    half = values.to(torch.bfloat16)
    return half if torch.equal(half.float(), values) else values


def describe_environment(recipe: Recipe, splits: Splits, device: torch.device) -> Environment:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return Environment(
        version=__version__,
        commit=commit(),
        python=platform.python_version(),
        torch=torch.__version__,
        device=gpu or f"{platform.machine()} CPU",
        seed=recipe.seed,
        data=splits.fingerprint,
        splits={
            row.split: SplitSize(normal=row.normal, anomalous=row.anomalous)
            for row in splits.table()
        },
    )


def commit() -> str | None:
    """The commit of the checkout this package lies in; None for an installed one. Where git is
    absent, the environment variable `SQUID_COMMIT` names it."""
    if "SQUID_COMMIT" in os.environ:
        return os.environ["SQUID_COMMIT"]
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
