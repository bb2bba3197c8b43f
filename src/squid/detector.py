"""The detector: a trained method with its preprocessing and its calibration. What a user holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid import heatmaps
from squid.calibration import Calibration, OperatingPoint
from squid.config import Backend, Damaged, Device, Precision
from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError
from squid.data.inputs import Images, Opened, open_images, read_images
from squid.data.pixels import to_unit
from squid.errors import DataError
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
    score: float | None
    """Raw; higher is more anomalous. None where no score means anything."""
    p_value: float | None
    """The chance of a healthy image to score as high; None without held-out healthy scores."""
    standardised: float | None
    """The paper's standardised score: 0.5 is the average healthy image; not a chance of disease."""
    flagged: bool | None
    """Whether the score reaches the threshold; None without one."""
    steps: tuple[str, ...] = ()
    """What was done to the image before it was scored, in order."""
    not_applicable: str = ""
    """Why it has no score, '' where it has."""
    warnings: tuple[str, ...] = ()
    """What may be wrong with the image; each begins with a verb."""
    rarity: str = ""
    """How many healthy images score as high, in words: `1 in 20`; '' without a p-value."""


@dataclass(frozen=True)
class ScoredImage:
    """One image with its raw score."""

    source: str
    score: float | None
    """None where no score means anything."""
    steps: tuple[str, ...] = ()
    not_applicable: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scores:
    """Images with their raw scores, and what was found besides: every input is in one of the
    three."""

    images: tuple[ScoredImage, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """Files that could not be read, each with the reason."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Paths that were not taken for images, each with the reason."""

    def __repr__(self) -> str:
        return (
            f"Scores({len(self.sources)} scored, {len(self.skipped)} skipped, "
            f"{len(self.left_out)} left out, {len(self.not_applicable)} not applicable)"
        )

    @property
    def scores(self) -> NDArray[np.float64]:
        """(n,) of the images that have one."""
        return np.array([one.score for one in self.images if one.score is not None], np.float64)

    @property
    def sources(self) -> tuple[str, ...]:
        """(n,) of the images that have a score."""
        return tuple(one.source for one in self.images if one.score is not None)

    @property
    def not_applicable(self) -> tuple[tuple[str, str], ...]:
        """Images without a score, each with the reason."""
        return tuple((one.source, one.not_applicable) for one in self.images if one.score is None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with images that were read, each with the image's name."""
        return tuple(f"{one.source} {text}" for one in self.images for text in one.warnings)


CHUNK = {"cuda": 256, "cpu": 16}
"""Images that are decoded, and explained, together."""


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
        damaged: Damaged | None = None,
    ) -> None:
        """`precision` is the training's on a GPU and float32 on a CPU when left out; a `run` is
        where an ONNX file is looked for and kept; `damaged` says what to do with damaged files, as
        the recipe does when left out."""
        self.device = scoring_device(device, backend)
        self.method = method.to(self.device).eval()
        # Convolutions are faster in this layout, on a CPU as well.
        self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = calibration
        self.recipe = recipe
        self.reading = recipe.data.reading
        if damaged is not None:
            self.reading = self.reading.model_copy(update={"damaged": damaged})
        self.run = run
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
        run: Run | Path | str,
        *,
        device: Device | torch.device = "auto",
        backend: Backend = "auto",
        precision: Precision | None = None,
        compile: bool = False,
        calibration: str | None = None,
        damaged: Damaged | None = None,
    ) -> "Detector":
        """From a run folder, and nothing else; `calibration` names one of a site (`squid
        calibrate`), the run's own by default; `damaged` says what to do with damaged files, as its
        recipe does by default.

        Files that differ from the folder's manifest are refused, unless the run is given as
        `Run.open(folder, verify=False)`.

        `backend`: `auto` takes ONNX Runtime on a CPU if the run has an ONNX file; `onnx` writes
        that file where it is missing; `torch` runs the method itself, with its modules' hooks.
        """
        folder = Run.open(run)
        return cls(
            folder.load_method(),
            folder.calibration if calibration is None else folder.site_calibration(calibration),
            folder.recipe,
            device=device,
            backend=backend,
            precision=precision,
            compile=compile,
            run=folder,
            damaged=damaged,
        )

    def __repr__(self) -> str:
        method, count = self.recipe.method, self.calibration.count
        calibrated = f"calibrated on {count} images" if count else "not calibrated"
        return f"Detector({method.name}, {method.size} pixels, {self.device}, {calibrated})"

    @property
    def backend(self) -> str:
        """What computes its scores: `torch` or `onnx`, whichever `auto` chose."""
        return self._backend.name

    @property
    def digest(self) -> str:
        """SHA-256 of the weights in its run folder, '' without one."""
        return "" if self.run is None else self.run.digest

    def save(self, run: Path | str, *, overwrite: bool = False) -> None:
        """A run folder that `load` reads."""
        folder = Run(run)
        with folder.only_writer():
            Run.create(run, self.recipe, overwrite=overwrite)
            folder.finish(self.method, self.calibration)

    def score(self, images: Images) -> NDArray[np.float64]:
        """(n,) raw scores, higher = more anomalous; an image for which none means anything is
        refused."""
        scored = self.score_files(images)
        for source, reason in scored.not_applicable:
            raise DataError(f"{source} has no score ({reason}); `predict` goes on without it.")
        return scored.scores

    def score_files(
        self, images: Images, *, on_error: OnError = "raise", progress: Progress | None = None
    ) -> Scores:
        """All images with their scores, and what was not scored by name and reason."""
        opened = self.open(images, on_error=on_error)
        parts = list(self.stream(opened, on_error=on_error, progress=progress))
        return Scores(
            tuple(chain.from_iterable(part.images for part in parts)),
            tuple(chain.from_iterable(part.skipped for part in parts)),
            (*opened.left_out, *chain.from_iterable(part.left_out for part in parts)),
        )

    def open(self, images: Images, *, on_error: OnError = "raise") -> Opened:
        """The images of an input, listed and not yet decoded."""
        size = self.recipe.method.size
        return open_images(images, size, reading=self.reading, on_error=on_error)

    def stream(
        self, opened: Opened, *, on_error: OnError = "raise", progress: Progress | None = None
    ) -> Iterator[Scores]:
        """Scores in the order of the images, some at a time. Files are decoded while those before
        them are scored, in bounded memory."""
        self._backend.prepare(len(opened))
        gpu = self.device.type == "cuda"
        # Images that are scored by each other must be there together.
        together = self.method.scored_together is not None
        size = max(1, len(opened)) if together else CHUNK[self.device.type]
        done, late = 0, None
        for chunk in opened.chunks(size, on_error, for_gpu=gpu):
            usable = [i for i, reason in enumerate(chunk.not_applicable) if not reason]
            pixels = chunk.pixels[usable] if len(usable) < len(chunk.sources) else chunk.pixels
            begun = chunk, self._backend.score(pixels) if len(pixels) else torch.empty(0)
            # Results are read one chunk late: a GPU works while the next chunk is on its way.
            if late is not None:
                yield _scores(*late)
            late = begun
            done += len(chunk.sources) + len(chunk.skipped) + len(chunk.left_out)
            if progress is not None:
                progress(done, len(opened))
        if late is not None:
            yield _scores(*late)

    def predict(self, images: Images, *, rate: float | None = None) -> list[Prediction]:
        """Scores and what they mean, at a false-positive rate (the calibration's by default)."""
        threshold = self.operating_point(rate).threshold if self.calibration.heldout else None
        return self.interpret(self.score_files(images).images, threshold)

    def operating_point(self, rate: float | None = None) -> OperatingPoint:
        """The threshold for a false-positive rate: by default that of the calibration, else the
        recipe's."""
        known = self.calibration
        if rate is None:
            rate = known.rate or self.recipe.false_positive_rate
        return known.operating_point(rate, known.confidence)

    def interpret(self, images: Sequence[ScoredImage], threshold: float | None) -> list[Prediction]:
        """Predictions from raw scores; without a threshold nothing is flagged or not."""
        known = self.calibration
        scores = [0.0 if one.score is None else one.score for one in images]
        p_values = known.p_value(scores) if known.heldout else [None] * len(images)
        rarity = known.rarity(scores) if known.heldout else [""] * len(images)
        standardised = known.standardised(scores) if known.count else [None] * len(images)
        return [
            Prediction(
                source=one.source,
                score=one.score,
                p_value=None if p is None or one.score is None else float(p),
                standardised=None if s is None or one.score is None else float(s),
                flagged=None if threshold is None or one.score is None else one.score >= threshold,
                steps=one.steps,
                not_applicable=one.not_applicable,
                warnings=one.warnings,
                rarity="" if one.score is None else rare,
            )
            for one, p, s, rare in zip(images, p_values, standardised, rarity, strict=True)
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
        """(n, h, w) heatmaps, higher = more anomalous; `kind` is one of `heatmap_kinds`, the first
        by default, whether or not an evaluation found that it shows anything: look at
        `squid report`."""
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


def _scores(chunk: LoadedImages, computed: Tensor) -> Scores:
    """The images of a chunk in their order; `computed` holds the scores of those that have one."""
    reasons = chunk.not_applicable
    scored = [source for source, reason in zip(chunk.sources, reasons, strict=True) if not reason]
    refuse_not_finite(computed := computed.double().cpu(), tuple(scored))
    scores = iter(computed.tolist())
    columns = chunk.sources, reasons, chunk.steps, chunk.warnings
    images = [
        ScoredImage(source, None if reason else next(scores), done, reason, found)
        for source, reason, done, found in zip(*columns, strict=True)
    ]
    return Scores(tuple(images), chunk.skipped, chunk.left_out)
