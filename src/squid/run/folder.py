"""One run folder: every file in it by name."""

import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from squid.calibration import Calibration
from squid.config import Config
from squid.durable import locked, remove_partial, write_text
from squid.errors import RunError
from squid.methods import build
from squid.methods.base import Method
from squid.recipe import Recipe, read_recipe
from squid.run.environment import Environment
from squid.run.files import check_file
from squid.run.history import History, Row, read_snapshots, write_snapshots
from squid.run.manifest import MANIFEST, Manifest, UnverifiedWarning
from squid.run.states import BEFORE, LAST, drop_states, has_state, load_state, save_state
from squid.run.weights import load_tensors, save_tensors
from squid.train.monitor import Epoch, State

C = TypeVar("C", bound=Config)

TRAINED_ON = "training-images.sha256"
FILES = (
    "recipe.toml",
    "model.safetensors",
    "training.safetensors",
    "calibration.json",
    TRAINED_ON,
    "metrics.json",
    "history.csv",
    "environment.json",
    "snapshots.npz",
    LAST,
    BEFORE,
    "model-card.md",
    "report.html",
    "model.onnx",
    MANIFEST,
)
"""What a training and the verbs after it write."""
UNLOCKED = ("metrics.json", "model-card.md", "report.html")
"""Those among them that `evaluate` and `report` write, which hold no lock."""
OWN_CALIBRATION = "run"
"""What results call the calibration that a training makes; no site's may be called so."""


class Run:
    """One run folder.

    Once its training is finished, the files that decide its answers are checked against the
    manifest whenever they are read. With `verify=False` a difference is only a warning.
    """

    def __init__(self, path: Path | str, *, verify: bool = True) -> None:
        self.path = Path(path)
        self._verify = verify
        self._manifest = Manifest(self.path)
        self._history = History(self.path / "history.csv")

    @classmethod
    def open(cls, path: "Run | Path | str", *, verify: bool = True) -> "Run":
        """A folder that is there and has a recipe; a run that is open is taken as it is."""
        if isinstance(path, Run):
            return path
        run = cls(path, verify=verify)
        if not check_file(run.path / "recipe.toml").is_file():
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
        """Removes what a training writes, and nothing a user may have put there. Calibrations of
        sites go with the weights that they were measured with."""
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        for site in self.sites:
            self._site(site).unlink()

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """The lock of this folder, which is made if it is absent; it is not left behind empty."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.path / ".lock", str(self.path)):
                self._remove_partial()
                yield
        finally:
            with suppress(OSError):  # it holds something
                self.path.rmdir()

    def _remove_partial(self) -> None:
        """What killed writers left; nothing in a folder elsewhere that a link leads to."""
        remove_partial(self.path, "|".join(re.escape(n) for n in FILES if n not in UNLOCKED))
        if not (sites := self.path / "calibrations").is_symlink():
            remove_partial(sites, r".+\.json")

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def recipe(self) -> Recipe:
        return read_recipe(self._checked("recipe.toml"))

    @property
    def finished(self) -> bool:
        return (self.path / "calibration.json").is_file()

    def _checked(self, name: str) -> Path:
        """The path of a file that decides answers, after a look at its checksum."""
        path = check_file(self.path / name)
        if self.finished:
            try:
                self._manifest.check(name)
            except RunError as error:
                if self._verify:
                    raise
                reason = str(error).partition(";")[0]
                warnings.warn(f"{reason}; used unverified.", UnverifiedWarning, stacklevel=3)
        return path

    # Weights and calibration

    @property
    def digest(self) -> str:
        """SHA-256 of the weights that score."""
        return self._manifest.digest("model.safetensors")

    def finish(self, method: Method, calibration: Calibration) -> None:
        """Write what scoring needs. The calibration, which makes a run finished, comes last: a run
        that is finished always has its manifest."""
        self.save_method(method)
        text = _json(calibration)
        covered = ("recipe.toml", "model.safetensors", "training.safetensors", TRAINED_ON)
        there = [name for name in covered if (self.path / name).is_file()]
        digests = {name: self._manifest.digest(name) for name in there}
        digests["calibration.json"] = hashlib.sha256(text.encode()).hexdigest()
        self._manifest.write(digests)
        self._write_text("calibration.json", text)

    def save_method(self, method: Method) -> None:
        """What scoring needs, and apart from it what only training needs."""
        state = {name: t.detach().cpu().contiguous() for name, t in method.state_dict().items()}
        apart = {n for n in state if method.training_only and n.startswith(method.training_only)}
        needed = {name: values for name, values in state.items() if name not in apart}
        save_tensors(self.path / "model.safetensors", needed)
        if apart:
            save_tensors(self.path / "training.safetensors", {n: state[n] for n in apart})

    def load_method(self) -> Method:
        """The trained method, on the CPU and in eval mode."""
        if not check_file(self.path / "model.safetensors").is_file():
            raise RunError(f"{self.path} is not trained yet; finish it with --resume.")
        method = build(self.recipe.method)
        method.restore(load_tensors(self._checked("model.safetensors")))
        return method.eval()

    def save_training_images(self, digests: Iterable[str]) -> None:
        """Digests of the images that it is trained on, so that no calibration takes them for new
        ones; sorted, so that they tell no order."""
        self._write_text(TRAINED_ON, "".join(f"{digest}\n" for digest in sorted(digests)))

    @property
    def training_images(self) -> frozenset[str]:
        """Their digests; empty where the training kept none."""
        if not check_file(self.path / TRAINED_ON).is_file():
            return frozenset()
        return frozenset(self._checked(TRAINED_ON).read_text(encoding="utf-8").split())

    @property
    def calibration(self) -> Calibration:
        return self._read_json(self._checked("calibration.json"), Calibration)

    @property
    def path_of_onnx(self) -> Path:
        return self.path / "model.onnx"

    @property
    def onnx(self) -> Path | None:
        """The exported model, where there is one."""
        return self._checked("model.onnx") if check_file(self.path_of_onnx).is_file() else None

    def keep_onnx(self) -> None:
        """Put the exported model, which was just written, into the manifest."""
        self._keep("model.onnx")

    def _keep(self, name: str) -> None:
        if self._manifest.path.is_file():  # a folder that is used unverified may have none
            self._manifest.add(name)

    # The state to resume from

    def save_state(self, state: State) -> None:
        save_state(self.path, state)

    def load_state(self) -> State | None:
        return load_state(self.path)

    @property
    def has_state(self) -> bool:
        return has_state(self.path)

    def drop_state(self) -> None:
        drop_states(self.path)

    # Tables

    def add_history(self, epoch: Epoch) -> None:
        """One line per epoch; stages with other losses widen the table."""
        self._history.add(epoch)

    @property
    def history(self) -> list[Row]:
        return self._history.rows()

    def save_snapshots(self, arrays: Mapping[str, np.ndarray]) -> None:
        write_snapshots(self.path / "snapshots.npz", arrays)

    @property
    def snapshots(self) -> dict[str, np.ndarray] | None:
        """`epochs` (s,), and per split `validation`, `test`: standardised scores (s, n)."""
        return read_snapshots(check_file(self.path / "snapshots.npz"))

    # Calibrations of sites, beside the run's own

    @property
    def sites(self) -> list[str]:
        """Names of the calibrations in calibrations/."""
        folder = self.path / "calibrations"
        # A link may lead to a folder elsewhere, in which nothing is this run's.
        return [] if folder.is_symlink() else sorted(path.stem for path in folder.glob("*.json"))

    def _site(self, name: str) -> Path:
        return self.path / f"calibrations/{name}.json"

    def site_calibration(self, name: str) -> Calibration:
        if name not in self.sites:
            known = f"known: {', '.join(self.sites)}" if self.sites else "there is none yet"
            raise RunError(
                f"{self.path} has no calibration '{name}' ({known}); make it with: "
                f"squid calibrate {self.path} HEALTHY --name {name}"
            )
        return self._read_json(self._checked(f"calibrations/{name}.json"), Calibration)

    def save_site_calibration(
        self, name: str, calibration: Calibration, *, overwrite: bool = False
    ) -> None:
        with self.only_writer():
            self.check_site(name, overwrite=overwrite)
            self._site(name).parent.mkdir(exist_ok=True)
            self._write_text(f"calibrations/{name}.json", _json(calibration))
            self._keep(f"calibrations/{name}.json")

    def check_site(self, name: str, *, overwrite: bool) -> None:
        """An error where a calibration of this name cannot be written."""
        # The name becomes that of a file.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name, re.ASCII):
            raise RunError(
                f"'{name}' cannot name a calibration; use letters, digits, '-', '_' and '.'."
            )
        if name.lower() == OWN_CALIBRATION:
            raise RunError(
                f"'{name}' names the run's own calibration in results; choose another --name."
            )
        if (folder := self._site(name).parent).is_symlink():
            raise RunError(f"{folder} is a link; calibrations are kept in the run folder itself.")
        if name in self.sites and not overwrite:
            raise RunError(
                f"{self.path} already has a calibration '{name}'; choose another --name, or add "
                "--overwrite to replace it."
            )

    def save_metrics(self, metrics: Config) -> None:
        self._write_text("metrics.json", _json(metrics))

    def save_environment(self, environment: Environment) -> None:
        self._write_text("environment.json", _json(environment))

    @property
    def environment(self) -> Environment:
        return self._read_json(self.path / "environment.json", Environment)

    def write_model_card(self, text: str) -> None:
        self._write_text("model-card.md", text)

    def write_in_model_card(self, heading: str, text: str) -> None:
        """One section of the card, in the place of an earlier one of this heading."""
        path = self.path / "model-card.md"
        card = path.read_text(encoding="utf-8") if path.is_file() else f"# {self.name}\n"
        before, _, old = card.partition(f"\n## {heading}\n")
        # What follows the old section begins with the next heading, if there is one.
        _, found, after = old.partition("\n## ")
        self.write_model_card(f"{before.rstrip()}\n\n## {heading}\n\n{text}\n{found}{after}")

    # Files

    def _write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text)

    def _read_json(self, path: Path, kind: type[C]) -> C:
        if not check_file(path).is_file():
            raise RunError(f"{self.path} has no {path.name}: its training is not finished.")
        try:
            return kind.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError):
            raise RunError(f"{path} is damaged; restore it or train again.") from None


def _json(record: Config) -> str:
    return record.model_dump_json(indent=2) + "\n"
