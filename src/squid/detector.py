"""The detector: a trained method with its preprocessing and its calibration. What a user holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid import heatmaps
from squid.calibration import RATES, Calibration
from squid.config import Backend, Device, Precision
from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError
from squid.data.inputs import Images, open_images, read_images
from squid.data.pixels import to_unit
from squid.inference import open_backend, scoring_device
from squid.inference.batches import refuse_not_finite
from squid.inference.torch import to_device
from squid.methods.base import Method
from squid.recipe import Recipe
from squid.run import Run


@dataclass(frozen=True)
class Prediction:
    """The result for one image."""

    source: str
    """The file it came from, or its place in the array."""
    score: float
    """Raw; higher is more anomalous."""
    standardised: float
    """The paper's standardised score: 0.5 is the average healthy image; not a chance of disease."""
    flagged: bool | None
    """Whether the score reaches the threshold measured on held-out healthy images; None without
    a calibration."""


@dataclass(frozen=True)
class Scores:
    """Raw scores, with where each came from."""

    scores: NDArray[np.float64]  # (n,)
    sources: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""


CHUNK = {"cuda": 256, "cpu": 16}
"""Images that are decoded, and explained, together."""

UNCALIBRATED = Calibration(mean=0.0, std=1.0, count=0, thresholds={}, heldout=0)


class Detector:
    """Scores images with a trained method; `predict` adds what the scores mean.

    The method is moved to the device and set to eval mode in place. Whoever builds a detector from
    a method in training, as snapshots do, sets it back to train mode.
    """

    def __init__(
        self,
        method: Method,
        calibration: Calibration,
        recipe: Recipe,
        *,
        device: Device | torch.device = "auto",
        backend: Backend = "auto",
        precision: Precision | None = None,
        compile: bool = False,
        run: Run | None = None,
    ) -> None:
        """`precision` is the training's on a GPU and float32 on a CPU when left out; a `run` is
        where an ONNX file is looked for and kept."""
        self.device = scoring_device(device, backend)
        self.method = method.to(self.device).eval()
        # Convolutions are faster in this layout, on a CPU as well.
        self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = calibration
        self.recipe = recipe
        self.reading = recipe.data.reading
        # Many processors are slower in bf16, so on a CPU it has to be chosen.
        usual = recipe.train.precision if self.device.type == "cuda" else "float32"
        self._backend = open_backend(
            method,
            recipe.method.size,
            self.device,
            backend=backend,
            precision=precision or usual,
            compile=compile,
            run=run,
        )

    @classmethod
    def load(
        cls,
        run: Path | str,
        *,
        device: Device | torch.device = "auto",
        backend: Backend = "auto",
        precision: Precision | None = None,
        compile: bool = False,
    ) -> "Detector":
        """From a run folder, and nothing else.

        `backend`: `auto` takes ONNX Runtime on a CPU if the run has an ONNX file; `onnx` writes
        that file where it is missing; `torch` runs the method itself, with its modules' hooks.
        """
        folder = Run.open(run)
        return cls(
            folder.load_method(),
            folder.calibration,
            folder.recipe,
            device=device,
            backend=backend,
            precision=precision,
            compile=compile,
            run=folder,
        )

    def __repr__(self) -> str:
        method, count = self.recipe.method, self.calibration.count
        calibrated = f"calibrated on {count} images" if count else "not calibrated"
        return f"Detector({method.name}, {method.size} pixels, {self.device}, {calibrated})"

    @property
    def rates(self) -> list[float]:
        """Target false-positive rates that get a threshold."""
        return sorted({*RATES, self.recipe.false_positive_rate})

    def save(self, run: Path | str, *, overwrite: bool = False) -> None:
        """A run folder that `load` reads."""
        folder = Run.create(run, self.recipe, overwrite=overwrite)
        folder.save_method(self.method)
        folder.save_calibration(self.calibration)

    def score(self, images: Images) -> NDArray[np.float64]:
        """(n,) raw scores, higher = more anomalous."""
        return self.score_files(images).scores

    def score_files(
        self, images: Images, *, on_error: OnError = "raise", progress: Progress | None = None
    ) -> Scores:
        """Files are decoded while those before them are scored, in bounded memory."""
        opened = open_images(images, self.recipe.method.size, reading=self.reading)
        scores: list[Tensor] = []
        sources: list[str] = []
        skipped: list[tuple[str, str]] = []
        self._backend.prepare(len(opened))
        gpu = self.device.type == "cuda"
        for chunk in opened.chunks(CHUNK[self.device.type], on_error, for_gpu=gpu):
            if len(chunk.pixels):
                scores.append(self._backend.score(chunk.pixels))
                # Results are read one chunk late: a GPU works while the next chunk is on its way.
                scores[-2:-1] = [late.cpu() for late in scores[-2:-1]]
            sources += chunk.sources
            skipped += chunk.skipped
            if progress is not None:
                progress(len(sources) + len(skipped), len(opened))
        joined = torch.cat([late.double().cpu() for late in scores]) if scores else torch.empty(0)
        refuse_not_finite(joined, tuple(sources))
        return Scores(joined.double().numpy(), tuple(sources), tuple(skipped))

    def predict(self, images: Images, *, rate: float | None = None) -> list[Prediction]:
        """Scores and what they mean, at a target false-positive rate (the recipe's by default)."""
        scored = self.score_files(images)
        return self.interpret(scored.sources, scored.scores, rate=rate)

    def interpret(
        self, sources: Sequence[str], scores: NDArray[np.float64], *, rate: float | None = None
    ) -> list[Prediction]:
        """Predictions from raw scores."""
        standardised = self.calibration.standardised(scores)
        # A converted run has no thresholds until it is calibrated.
        flags: list[bool | None] = [None] * len(scores)
        if self.calibration.thresholds:
            rate = self.recipe.false_positive_rate if rate is None else rate
            flags = self.calibration.flagged(scores, rate).tolist()
        return [
            Prediction(source, float(score), float(value), flagged)
            for source, score, value, flagged in zip(
                sources, scores, standardised, flags, strict=True
            )
        ]

    def reconstruct(self, images: Images) -> NDArray[np.float32] | None:
        """(n, h, w) in [0, 1]: each image as the method reconstructs it from healthy ones; None
        where it reconstructs nothing."""
        parts = [
            self.method.reconstruct(batch) for batch in self._batches(self.read(images).pixels)
        ]
        if any(part is None for part in parts):
            return None
        return torch.cat([part[:, 0].float().cpu() for part in parts if part is not None]).numpy()

    def explain(self, images: Images, kind: str | None = None) -> NDArray[np.float32]:
        """(n, h, w) heatmaps, higher = more anomalous; `kind` is one of `heatmap_kinds`."""
        kind = kind or self.heatmap_kinds[0]
        maps = [
            heatmaps.heatmap(self.method, batch, kind).float().cpu()
            for batch in self._batches(self.read(images).pixels)
        ]
        return torch.cat(maps).numpy()

    @property
    def heatmap_kinds(self) -> tuple[str, ...]:
        """The heatmaps this method can make, the default first."""
        return heatmaps.kinds(self.method)

    def read(
        self, images: Images, *, on_error: OnError = "raise", progress: Progress | None = None
    ) -> LoadedImages:
        """Files or arrays as this detector's method wants them."""
        return read_images(
            images,
            self.recipe.method.size,
            on_error=on_error,
            progress=progress,
            reading=self.reading,
        )

    def _batches(self, pixels: Tensor) -> Iterator[Tensor]:
        """(n, 1, h, w) uint8 -> (b, 1, h, w) in [0, 1], on the device and without gradients."""
        with torch.no_grad():
            for part in torch.split(pixels, CHUNK[self.device.type]):
                yield self.method.prepare(to_unit(to_device(part, self.device)))
