"""What a user gives a detector to score: files, folders or arrays."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError, cores, read_many, stream
from squid.data.files import image_files
from squid.data.image import resize_all
from squid.errors import DataError

Images = str | Path | Sequence[str | Path] | NDArray[np.generic] | Tensor
"""A file, a folder, several files, or pixels: (h, w), (n, h, w) or (n, 1, h, w), uint8 or float in
[0, 1]."""

LOOKED_UP = 64
"""Paths that a thread looks up in one task."""


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
        self, batch_size: int, on_error: OnError, *, for_gpu: bool = False
    ) -> Iterator[LoadedImages]:
        """The images in order; files are decoded ahead."""
        if not isinstance(self.content, Tensor):
            files = self.content
            yield from stream(files, self.size, batch_size, on_error=on_error, for_gpu=for_gpu)
            return
        for start in range(0, len(self), batch_size):
            places = tuple(range(start, min(start + batch_size, len(self))))
            part = slice(start, start + batch_size)
            yield LoadedImages(self.content[part], places, self.sources[part], ())


def open_images(images: Images, size: int) -> Opened:
    """The images of a user's input; files are not decoded yet."""
    if isinstance(images, (np.ndarray, Tensor)):
        pixels = _to_pixels(images, size)
        return Opened(pixels, tuple(f"image {i}" for i in range(len(pixels))), size)
    paths = list_files([images] if isinstance(images, (str, Path)) else images)
    return Opened(paths, tuple(map(str, paths)), size)


def read_images(
    images: Images, size: int, *, on_error: OnError = "raise", progress: Progress | None = None
) -> LoadedImages:
    """Files, folders or arrays as gray bytes of one size."""
    opened = open_images(images, size)
    if isinstance(opened.content, Tensor):
        return LoadedImages(opened.content, tuple(range(len(opened))), opened.sources, ())
    return read_many(opened.content, size, on_error=on_error, progress=progress)


def list_files(images: Sequence[str | Path]) -> list[Path]:
    """Files in the order given; a folder stands for the images in it."""
    try:
        given = [Path(image) for image in images]
    except TypeError:
        raise DataError(
            f"Images of type {type(images).__name__} are not understood; give a file, a folder, "
            f"a list of files, or one array (n, h, w)."
        ) from None
    paths: list[Path] = []
    for path, is_file in zip(given, _are_files(given), strict=True):
        if is_file:
            paths.append(path)
        elif path.is_dir():
            found = image_files(path)
            if not found:
                raise DataError(f"{path} holds no image files (PNG, JPEG, TIFF, BMP).")
            paths.extend(found)
        else:
            raise DataError(f"There is no file or folder {path}.")
    return paths


def _are_files(paths: Sequence[Path]) -> Iterator[bool]:
    """Whether each path is a file. Several threads ask: a file server takes a while to answer."""
    parts = (paths[start : start + LOOKED_UP] for start in range(0, len(paths), LOOKED_UP))
    with ThreadPoolExecutor(cores()) as pool:
        for answers in pool.map(lambda part: [path.is_file() for path in part], parts):
            yield from answers


def _to_pixels(images: NDArray[np.generic] | Tensor, size: int) -> Tensor:
    """(h, w), (n, h, w) or (n, 1, h, w) -> (n, 1, size, size) uint8."""
    if isinstance(images, Tensor):
        if images.dtype == torch.uint8 and images.shape[1:] == (1, size, size):
            return images
        # NumPy has no bfloat16.
        images = (images.float() if images.dtype == torch.bfloat16 else images).cpu().numpy()
    array: NDArray[np.generic] = images
    gray = array[None] if array.ndim == 2 else array
    if gray.ndim == 4 and gray.shape[1] == 1:
        gray = gray[:, 0]
    # (h, w, 3) would pass for h images of width 3, so images that narrow are refused.
    if gray.ndim != 3 or gray.shape[-1] in (3, 4):
        raise DataError(f"Images of shape {array.shape} are not gray; give (n, h, w).")
    if gray.dtype != np.uint8 and not np.issubdtype(gray.dtype, np.floating):
        raise DataError(
            f"Images of type {gray.dtype} are not known; give uint8, or float in [0, 1]."
        )
    if gray.dtype != np.uint8 and gray.size and not (gray.min() >= 0 and gray.max() <= 1):
        raise DataError("Float images must lie in [0, 1]; divide by their largest possible value.")
    return resize_all(gray, size)
