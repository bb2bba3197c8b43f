"""What a user hands over to be looked at: files, folders or arrays."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.base import Progress
from squid.data.decode import Chunk, OnError, cores, read_many, stream
from squid.data.files import image_files
from squid.data.image import resize
from squid.errors import DataError

Images = str | Path | Sequence[str | Path] | NDArray[np.generic] | Tensor
"""A file, a folder, several files, or pixels: (h, w), (n, h, w) or (n, 1, h, w), uint8 or float in
[0, 1]."""

ASKED = 64
"""Paths that a thread looks up at once."""


@dataclass(frozen=True)
class LoadedImages:
    """Images ready for a method, with where each came from."""

    pixels: Tensor  # (n, 1, size, size) uint8
    sources: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Opened:
    """Images before they are read."""

    content: Tensor | list[Path]
    """Pixels (n, 1, size, size) uint8, or files."""
    sources: tuple[str, ...]
    size: int

    def __len__(self) -> int:
        return len(self.sources)

    def chunks(
        self, batch_size: int, on_error: OnError, *, beside_gpu: bool = False
    ) -> Iterator[Chunk]:
        """In order; files are decoded ahead."""
        if not isinstance(self.content, Tensor):
            files = self.content
            yield from stream(
                files, self.size, batch_size, on_error=on_error, beside_gpu=beside_gpu
            )
            return
        for start in range(0, len(self.content), batch_size):
            part = self.content[start : start + batch_size]
            yield Chunk(part, tuple(range(start, start + len(part))), ())


def open_images(images: Images, size: int) -> Opened:
    """Nothing is decoded yet."""
    if isinstance(images, (np.ndarray, Tensor)):
        pixels = _as_bytes(torch.as_tensor(images), size)
        return Opened(pixels, tuple(f"image {i}" for i in range(len(pixels))), size)
    paths = list_files([images] if isinstance(images, (str, Path)) else images)
    return Opened(paths, tuple(map(str, paths)), size)


def read_images(
    images: Images, size: int, *, on_error: OnError = "raise", progress: Progress | None = None
) -> LoadedImages:
    """Files, folders or arrays as gray bytes of one size."""
    opened = open_images(images, size)
    if isinstance(opened.content, Tensor):
        return LoadedImages(opened.content, opened.sources, ())
    reading = read_many(opened.content, size, on_error=on_error, progress=progress)
    sources = tuple(opened.sources[place] for place in reading.kept)
    return LoadedImages(reading.pixels, sources, reading.skipped)


def list_files(images: Sequence[str | Path]) -> list[Path]:
    """Files as they are given, folders opened."""
    paths: list[Path] = []
    places = [Path(image) for image in images]
    for place, is_file in zip(places, _are_files(places), strict=True):
        if is_file:
            paths.append(place)
        elif place.is_dir():
            found = image_files(place)
            if not found:
                raise DataError(f"{place} holds no image files (PNG, JPEG, TIFF, BMP).")
            paths.extend(found)
        else:
            raise DataError(f"There is no file or folder {place}.")
    return paths


def _are_files(places: Sequence[Path]) -> Iterator[bool]:
    """Asked by several threads: where an archive lies on a server, each answer takes a while."""
    parts = (places[start : start + ASKED] for start in range(0, len(places), ASKED))
    with ThreadPoolExecutor(cores()) as pool:
        for answers in pool.map(lambda part: [place.is_file() for place in part], parts):
            yield from answers


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
    if pixels.is_floating_point() and len(pixels) and not _within_unit(pixels):
        raise DataError("Float images must lie in [0, 1]; divide by their largest possible value.")
    if pixels.dtype == torch.uint8 and pixels.shape[-2:] == (size, size):
        return pixels
    resized = [resize(image.cpu(), size) for image in pixels]
    return torch.stack(resized) if resized else torch.empty(0, 1, size, size, dtype=torch.uint8)


def _within_unit(pixels: Tensor) -> bool:
    return bool(pixels.min() >= 0 and pixels.max() <= 1)
