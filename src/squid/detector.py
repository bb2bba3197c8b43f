"""The detector: a trained method with its preprocessing and its calibration. What a user holds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid import explain
from squid.calibration import Calibration, calibrate
from squid.data.cache import ImageStore
from squid.data.image import read_many, resize
from squid.data.listing import image_files
from squid.data.splits import Splits
from squid.errors import DataError
from squid.methods import build
from squid.methods.base import Method
from squid.recipe import Recipe
from squid.run import Run
from squid.train import Engine, Monitor, train
from squid.train.engine import Device, pick_device
from squid.train.loop import State

Images = str | Path | Sequence[str | Path] | NDArray[np.generic] | Tensor
"""A file, a folder, several files, or pixels: (h, w), (n, h, w) or (n, 1, h, w), uint8 or float in [0, 1]."""

BATCH_SIZE = 64


@dataclass(frozen=True)
class Prediction:
    """What a detector says of one image."""

    source: str
    score: float
    """Raw; higher is more anomalous."""
    probability: float
    """The paper's standardised score: 0.5 is the average healthy image; not a chance of disease."""
    anomalous: bool
    """Whether the score reaches the threshold measured on held-out healthy images."""


@dataclass(frozen=True)
class Loaded:
    """Images ready for a method, with where each came from."""

    pixels: Tensor  # (n, 1, size, size) uint8
    sources: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


class Detector:
    """Scores images with a trained method; `predict` adds what the scores mean."""

    def __init__(
        self, method: Method, calibration: Calibration, recipe: Recipe, *, device: Device = "auto"
    ) -> None:
        self.device = pick_device(device)
        self.method = method.to(self.device).eval()
        self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = calibration
        self.recipe = recipe

    @classmethod
    def load(cls, run: Path | str, *, device: Device = "auto") -> "Detector":
        """From a run folder, and nothing else."""
        folder = Run.open(run)
        return cls(folder.load_method(), folder.calibration, folder.recipe, device=device)

    @classmethod
    def fit(
        cls, recipe: Recipe, splits: Splits, *, engine: Engine, monitor: Monitor, method: Method | None = None,
        state: State | None = None,
    ) -> "Detector":  # fmt: skip
        """Train on the splits' training images and calibrate on held-out healthy ones."""
        method = method or new_method(recipe)
        augment = recipe.train.augment
        store = ImageStore(
            splits.train.pixels, engine.device, budget_bytes=device_budget(engine.device),
            interpolation=augment.interpolation if augment else "nearest",
        )  # fmt: skip
        train(
            method,
            store,
            recipe.train,
            seed=recipe.seed,
            engine=engine,
            monitor=monitor,
            state=state,
        )
        kind: Device = "cuda" if engine.device.type == "cuda" else "cpu"
        return cls.calibrated(method, recipe, splits, device=kind)

    @classmethod
    def calibrated(
        cls, method: Method, recipe: Recipe, splits: Splits, *, device: Device = "auto"
    ) -> "Detector":
        """A detector whose calibration is measured now, on healthy images only."""
        unknown = Calibration(mean=0.0, std=1.0, count=0, thresholds={}, heldout=0)
        detector = cls(method, unknown, recipe, device=device)
        rates = sorted({0.01, 0.05, 0.1, 0.2, recipe.false_positive_rate})
        detector.calibration = calibrate(
            detector.score(splits.train.normals.pixels),
            detector.score(splits.validation.normals.pixels), rates, source="validation normals",
        )  # fmt: skip
        return detector

    def save(self, run: Path | str, *, overwrite: bool = False) -> None:
        """A run folder that `load` reads."""
        folder = Run.create(run, self.recipe, overwrite=overwrite)
        folder.save_method(self.method)
        folder.save_calibration(self.calibration)

    def score(self, images: Images) -> NDArray[np.float64]:
        """(n,) raw scores, higher = more anomalous."""
        pixels = self.read(images).pixels
        scores = [self.method.score(batch).double().cpu() for batch in self._batches(pixels)]
        return torch.cat(scores).numpy() if scores else np.empty(0)

    def predict(self, images: Images, *, rate: float | None = None) -> list[Prediction]:
        """Scores and what they mean, at a target false-positive rate (the recipe's by default)."""
        loaded = self.read(images)
        return self.judge(loaded.sources, self.score(loaded.pixels), rate=rate)

    def judge(
        self, sources: Sequence[str], scores: NDArray[np.float64], *, rate: float | None = None
    ) -> list[Prediction]:
        """What raw scores mean."""
        verdicts = self.calibration.verdict(scores, rate or self.recipe.false_positive_rate)
        probabilities = self.calibration.probability(scores)
        return [
            Prediction(source, float(score), float(probability), bool(verdict))
            for source, score, probability, verdict in zip(
                sources, scores, probabilities, verdicts, strict=True
            )
        ]

    def reconstruct(self, images: Images) -> NDArray[np.float32] | None:
        """(n, h, w) in [0, 1]: the healthy version the method draws; None where it draws nothing."""
        drawn = [
            self.method.reconstruct(batch) for batch in self._batches(self.read(images).pixels)
        ]
        if any(d is None for d in drawn):
            return None
        return torch.cat([d[:, 0].float().cpu() for d in drawn if d is not None]).numpy()

    def explain(self, images: Images, kind: str | None = None) -> NDArray[np.float32]:
        """(n, h, w) heatmaps, higher = more anomalous; `kind` is one of `heatmap_kinds`."""
        kind = kind or self.heatmap_kinds[0]
        maps = [
            explain.explain(self.method, batch, kind).float().cpu()
            for batch in self._batches(self.read(images).pixels)
        ]
        return torch.cat(maps).numpy()

    @property
    def heatmap_kinds(self) -> tuple[str, ...]:
        """The heatmaps this method can make, the most telling first."""
        return explain.kinds(self.method)

    def read(
        self, images: Images, *, on_error: Literal["raise", "skip"] = "raise",
        progress: Callable[[int, int], None] | None = None,
    ) -> Loaded:  # fmt: skip
        """Files or arrays as this detector's method wants them."""
        return read_images(images, self.recipe.method.size, on_error=on_error, progress=progress)

    def _batches(self, pixels: Tensor) -> Iterator[Tensor]:
        with torch.no_grad():
            for chunk in pixels.split(BATCH_SIZE):
                yield chunk.to(self.device, non_blocking=True).float() / 255.0


def new_method(recipe: Recipe) -> Method:
    """The untrained method; its first weights depend on the recipe's seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return build(recipe.method)


def read_images(
    images: Images, size: int, *, on_error: Literal["raise", "skip"] = "raise",
    progress: Callable[[int, int], None] | None = None,
) -> Loaded:  # fmt: skip
    """Files, folders or arrays as gray bytes of one size."""
    if isinstance(images, (np.ndarray, Tensor)):
        pixels = _as_bytes(torch.as_tensor(images), size)
        return Loaded(pixels, tuple(f"image {i}" for i in range(len(pixels))), ())
    paths = list_files([images] if isinstance(images, (str, Path)) else images)
    reading = read_many(paths, size, on_error=on_error, progress=progress)
    sources = tuple(str(paths[place]) for place in reading.kept)
    return Loaded(reading.pixels, sources, reading.skipped)


def list_files(images: Sequence[str | Path]) -> list[Path]:
    """Files as they are given, folders opened."""
    paths: list[Path] = []
    for place in map(Path, images):
        if place.is_dir():
            found = image_files(place)
            if not found:
                raise DataError(f"{place} holds no image files (PNG, JPEG, TIFF, BMP).")
            paths.extend(found)
        elif place.is_file():
            paths.append(place)
        else:
            raise DataError(f"There is no file or folder {place}.")
    return paths


def device_budget(device: torch.device) -> int | None:
    """Bytes of training images kept on the device: half of what is free on a GPU; no limit on a CPU."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else None


def _as_bytes(pixels: Tensor, size: int) -> Tensor:
    """(h, w), (n, h, w) or (n, 1, h, w) -> (n, 1, size, size) uint8."""
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4 or pixels.shape[1] != 1:
        raise DataError(f"Images of shape {tuple(pixels.shape)} are not gray; give (n, h, w).")
    if not pixels.is_floating_point() and pixels.dtype != torch.uint8:
        raise DataError(
            f"Images of type {pixels.dtype} are not known; give uint8, or float in [0, 1]."
        )
    if pixels.is_floating_point() and (pixels.min() < 0 or pixels.max() > 1):
        raise DataError("Float images must lie in [0, 1]; divide by their largest possible value.")
    return torch.stack([resize(image.cpu(), size) for image in pixels])
