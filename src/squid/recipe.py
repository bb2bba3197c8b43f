"""A recipe: the TOML file that fully describes a training."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, SerializeAsAny, field_validator

from squid.config import Config, nearest, override, parse, read_toml
from squid.data import DATASETS
from squid.data.base import DataConfig
from squid.data.store import Augment
from squid.errors import ConfigError
from squid.methods import METHODS
from squid.methods.base import MethodConfig
from squid.methods.fusion import SMALL_RADIOGRAPHS, FusionConfig
from squid.train import TrainConfig


class CalibrationConfig(Config):
    """The training images that give the mean and spread of healthy scores."""

    images: int | None = Field(None, ge=2)
    """How many, from the first on; all when left out (paper). The authors: 201."""
    augmented: bool = False
    """Whether they are shifted and scaled as in training (authors)."""


class Recipe(Config):
    """Data, method and training."""

    title: str = ""
    """What this recipe is for, in one line."""
    seed: int = 0
    """Seed of the weights and of all random numbers of the training; the split has its own in
    `data.seed`."""
    false_positive_rate: float = Field(0.1, gt=0, lt=1)
    """Target rate at which healthy images are flagged; held-out healthy images give the threshold
    for it."""
    calibration: CalibrationConfig = CalibrationConfig()
    data: SerializeAsAny[DataConfig]
    method: SerializeAsAny[MethodConfig]
    train: TrainConfig = TrainConfig()

    @field_validator("data", mode="before")
    @classmethod
    def _pick_dataset(cls, values: Any) -> Any:
        return _pick(values, DATASETS, "dataset")

    @field_validator("method", mode="before")
    @classmethod
    def _pick_method(cls, values: Any) -> Any:
        configs = {name: method.Config for name, method in METHODS.items()}
        return _pick(values, configs, "method")

    def to_toml(self) -> str:
        """The whole recipe with every default written out; what has no value is left out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def resolved(self) -> "Recipe":
        """A copy whose data are found from every working directory."""
        return self.model_copy(update={"data": self.data.resolved()})

    def with_settings(self, settings: Iterable[str]) -> "Recipe":
        """A copy with overrides such as `method.slots=100`."""
        values = override(self.model_dump(mode="json", exclude_none=True), settings)
        return parse(Recipe, values, "--set")


def read_recipe(path: Path, settings: Iterable[str] = ()) -> Recipe:
    """A recipe file with dotted overrides put in."""
    values = read_toml(path)
    if "sections" in values:
        raise ConfigError(f"{path} holds a benchmark; run it with: squid benchmark {path}")
    return parse(Recipe, override(values, settings), str(path))


def radiograph_recipe(data: DataConfig, *, small: bool) -> Recipe:
    """The default for radiographs: a fusion of auto-encoders and a network that learns to find
    synthetic lesions. It was chosen on labelled validation images of RSNA (docs/results.md).

    `small` is for a CPU: 64 pixels instead of 128, in float32.
    """
    method = FusionConfig(size=64, parts=SMALL_RADIOGRAPHS) if small else FusionConfig()
    augment = Augment(shift=0.05, scale=(0.95, 1.05), interpolation="bilinear")
    return Recipe(
        title="Radiographs: fusion of AE-U and synthetic lesions",
        data=data,
        method=method,
        train=TrainConfig(precision="float32" if small else "bf16", augment=augment),
    )


def _pick(values: Any, known: Mapping[str, type[Config]], what: str) -> Any:
    """The settings of a table as the class that its `name` says."""
    # A finished config is passed through: recipes are also built in Python.
    if not isinstance(values, Mapping):
        return values
    name = values.get("name")
    if name is None:
        raise ValueError(f"the {what} has no name; known: {', '.join(known)}.")
    if name not in known:
        raise ValueError(f"there is no {what} '{name}'; {nearest(str(name), known)}")
    return known[name].model_validate(values)
