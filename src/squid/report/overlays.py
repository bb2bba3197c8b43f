"""Explanations of single images: a picture of each, and the values of its heatmap on request."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from squid.data.image import read_gray
from squid.detector import Detector, Prediction, ScoredImage
from squid.durable import replacing
from squid.errors import DataError
from squid.evaluation.default_heatmap import default_heatmap, measured_at_chance
from squid.evaluation.percent import rate_percent
from squid.heatmaps import shared_scale
from squid.outputs.results import Flagging, flag_by_rate
from squid.report.figures.images import HEATMAP_NAMES
from squid.report.overlay_picture import Explanation, explanation_picture

Values = Literal["npy", "tiff"]
AT_ONCE = 32
"""Images whose pixels are in memory at a time."""


@dataclass(frozen=True)
class _Explained:
    """One image with what the method makes of it; its pixels are read again for the picture."""

    prediction: Prediction
    heatmap: NDArray[np.float32]
    reconstruction: NDArray[np.uint8] | None


@dataclass
class WrittenOverlays:
    """What was written, and what could not be."""

    kind: str
    """The kind of heatmap."""
    pictures: list[Path] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Files that could not be read, each with the reason."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Files of a folder that were not taken for images, each with the reason."""
    warning: str = ""
    """Why this kind of heatmap should not be read, '' where it may."""
    note: str = ""
    """Why it is not the method's first kind, '' where it is or was asked for."""


def write_overlays(
    detector: Detector,
    images: Sequence[Path],
    out: Path,
    kind: str | None = None,
    *,
    values: Values | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WrittenOverlays:
    """One PNG per image, all heatmaps on one scale; a repeated name gets a number.

    `values` also writes what the method computed, (size, size) float32, next to each picture.
    """
    written = _choose(detector, kind)
    kind, warning = written.kind, written.warning
    flagging = flag_by_rate(detector)
    explained = list(_explain(detector, images, written, flagging, progress))
    if not explained:
        return written
    scale = shared_scale(one.heatmap for one in explained)
    out.mkdir(parents=True, exist_ok=True)
    for one in explained:
        source = Path(one.prediction.source)
        about = Explanation(
            name=source.name,
            answer=_answer(one.prediction, flagging),
            heatmap_name=HEATMAP_NAMES[kind],
            warning=warning,
            images=len(explained),
        )
        image = read_gray(source, reading=detector.reading).picture()
        gray = None if one.reconstruction is None else one.reconstruction / 255.0
        picture = explanation_picture(image, gray, one.heatmap, scale, about)
        path = _unused(out, source.stem, written.pictures)
        with replacing(path) as partial:
            picture.save(partial, format="PNG")
        if values is not None:
            _write_values(one.heatmap, path, values)
        written.pictures.append(path)
    return written


def _explain(
    detector: Detector,
    images: Sequence[Path],
    written: WrittenOverlays,
    flagging: Flagging,
    progress: Callable[[int, int], None] | None,
) -> Iterator[_Explained]:
    """Every image that can be read; `written` takes down the others."""
    opened = detector.open(images, on_error="skip")
    written.left_out = opened.left_out
    done = 0
    for chunk in opened.chunks(AT_ONCE, "skip"):
        written.skipped += chunk.skipped
        written.left_out += chunk.left_out
        done += len(chunk.sources) + len(chunk.skipped) + len(chunk.left_out)
        if chunk.sources:
            scores = detector.score_files(chunk.pixels).images
            heat = detector.explain(chunk.pixels, written.kind)
            reconstructions = detector.reconstruct(chunk.pixels)
            scored = [
                ScoredImage(source, None if reason else one.score, not_applicable=reason)
                for source, one, reason in zip(
                    chunk.sources, scores, chunk.not_applicable, strict=True
                )
            ]
            for place, one in enumerate(detector.interpret(scored, flagging.threshold)):
                gray = None if reconstructions is None else _to_bytes(reconstructions[place])
                yield _Explained(one, heat[place], gray)
        if progress is not None:
            progress(done, len(opened))


def _choose(detector: Detector, asked: str | None) -> WrittenOverlays:
    """The kind of heatmap, and what must be said of it: its own measured failure, or that of the
    method's first kind, which it stands in for."""
    if not detector.heatmap_kinds:
        raise DataError(f"A detector of the method {detector.recipe.method.name} has no heatmaps.")
    first, default = detector.heatmap_kinds[0], default_heatmap(detector)
    # Pictures of heatmaps were asked for: where none shows anything, the first one says so itself.
    kind = asked or default.kind or first
    if reason := measured_at_chance(detector).get(kind):
        return WrittenOverlays(kind, warning=f"Do not read this heatmap: {reason}.")
    if asked or kind == first:
        return WrittenOverlays(kind)
    shown, passed = HEATMAP_NAMES[kind], HEATMAP_NAMES[first]
    note = f"{shown} is shown in the place of {passed}, the method's first ({default.reason})"
    return WrittenOverlays(kind, note=note)


def _answer(prediction: Prediction, flagging: Flagging) -> str:
    """Score, how rare it is, and whether it is flagged."""
    if prediction.score is None:
        return f"no score: {prediction.not_applicable}"
    words = [f"score {prediction.score:.4g}"]
    if prediction.p_value is not None:
        words.append(f"{prediction.rarity} healthy images scores this high")
    if flagging.threshold is None:
        return " · ".join([*words, "not calibrated: not flagged"])
    flagged = "flagged" if prediction.flagged else "not flagged"
    rate = f", target: {rate_percent(flagging.rate)} false alarms" if flagging.rate else ""
    return " · ".join([*words, f"{flagged} (threshold {flagging.threshold:.4g}{rate})"])


def _to_bytes(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.asarray(np.rint(255 * image.clip(0, 1)), dtype=np.uint8)


def _write_values(heatmap: NDArray[np.float32], picture: Path, values: Values) -> None:
    """The heatmap as numbers, as NumPy or as an image of floats."""
    path = picture.with_suffix(".npy" if values == "npy" else ".tiff")
    with replacing(path) as partial, partial.open("wb") as file:
        if values == "npy":
            np.save(file, heatmap)
        else:
            PIL.Image.fromarray(heatmap).save(file, format="TIFF")


def _unused(folder: Path, stem: str, taken: Sequence[Path]) -> Path:
    path, number = folder / f"{stem}.png", 1
    while path in taken:
        number += 1
        path = folder / f"{stem}-{number}.png"
    return path
