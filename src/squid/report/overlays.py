"""Overlay pictures of single images: input, reconstruction and heatmap side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import PIL.Image

from squid.detector import Detector
from squid.heatmaps import overlay, shared_scale

SMALLEST = 384
"""Pixels of the shown side of each picture: small inputs are enlarged without smoothing."""


def write_overlays(
    detector: Detector, images: Sequence[Path], out: Path, kind: str | None = None
) -> list[Path]:
    """One PNG per image, all heatmaps on one scale; a repeated name gets a number."""
    loaded = detector.read(images)
    heat = detector.explain(loaded.pixels, kind)
    reconstructions = detector.reconstruct(loaded.pixels)
    scale = shared_scale(heat)
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for i, source in enumerate(loaded.sources):
        image = loaded.pixels[i, 0].numpy() / 255.0  # (h, w)
        # Side by side: input, reconstruction where there is one, and the heatmap over the input.
        parts = [image] if reconstructions is None else [image, reconstructions[i]]
        panels = [np.repeat(_bytes(part)[..., None], 3, -1) for part in parts]
        panels.append(overlay(image, heat[i], scale=scale))
        path = _unused(out, Path(source).stem, written)
        _enlarged(np.concatenate(panels, axis=1)).save(path)
        written.append(path)
    return written


def _bytes(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(255 * image.clip(0, 1)), dtype=np.uint8)


def _unused(folder: Path, stem: str, taken: Sequence[Path]) -> Path:
    path, number = folder / f"{stem}.png", 1
    while path in taken:
        number += 1
        path = folder / f"{stem}-{number}.png"
    return path


def _enlarged(picture: np.ndarray) -> PIL.Image.Image:
    height, width = picture.shape[:2]
    # Whole factors without smoothing, so that every pixel of the method's input stays a square.
    factor = max(1, SMALLEST // height)
    image = PIL.Image.fromarray(picture)
    return image.resize((width * factor, height * factor), PIL.Image.Resampling.NEAREST)
