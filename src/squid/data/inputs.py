"""What a user gives a detector to score: files, folders, or images in memory."""

import io
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.arrays import resize_array
from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError, cores, read_many, stream
from squid.data.files import image_files
from squid.data.image import Resized, resize_picture
from squid.data.levels import RangeWarning
from squid.data.reading import AS_DECLARED, Reading
from squid.errors import DataError

Image = str | os.PathLike[str] | PIL.Image.Image | NDArray[np.generic] | Tensor
"""A file or a folder, a Pillow image, or an array or tensor of one image or several (see
`resize_array`)."""
Images = Image | Iterable[Image]
"""One of these, or several: all on disk or all in memory."""

LOOKED_UP = 64
"""Paths that a thread looks up in one task."""


@dataclass(frozen=True)
class Opened:
    """Images before they are read."""

    content: Tensor | list[Path]
    """Pixels (n, 1, size, size) uint8, or files."""
    sources: tuple[str, ...]
    size: int
    reading: Reading = AS_DECLARED
    left_out: tuple[tuple[str, str], ...] = ()
    """Files of a folder that are no images, each with the reason."""
    steps: tuple[tuple[str, ...], ...] = ()
    """(n,) what was done to each image in memory; empty where `not_applicable` is."""
    not_applicable: tuple[str, ...] = ()
    """(n,) for images in memory: why one has no score, '' where it has; empty for pixels (n, 1,
    size, size) uint8, which are taken as they are."""

    def __len__(self) -> int:
        return len(self.sources)

    def chunks(
        self, batch_size: int, on_error: OnError, *, for_gpu: bool = False
    ) -> Iterator[LoadedImages]:
        """The images in order; files are decoded ahead."""
        if not isinstance(self.content, Tensor):
            yield from stream(
                self.content,
                self.size,
                batch_size,
                on_error=on_error,
                for_gpu=for_gpu,
                reading=self.reading,
            )
            return
        for start in range(0, len(self), batch_size):
            places = tuple(range(start, min(start + batch_size, len(self))))
            part = slice(start, start + batch_size)
            yield LoadedImages(
                self.content[part],
                places,
                self.sources[part],
                (),
                steps=self.steps[part],
                not_applicable=self.not_applicable[part],
            )


def open_images(images: Images, size: int, *, reading: Reading = AS_DECLARED) -> Opened:
    """The images of a user's input; files are not decoded yet."""
    if isinstance(images, Tensor) and _is_ready(images, size):
        return _in_memory(images, size)
    paths: list[Path] = []
    read: list[Resized] = []
    for image in _one_by_one(images):
        match image:
            case str() | os.PathLike():
                paths.append(Path(image))
            case PIL.Image.Image():
                read.append(resize_picture(image, size, f"image {len(read)}", reading=reading))
            case np.ndarray() | Tensor():
                read += resize_array(image, size, f"image {len(read)}", reading=reading)
            case _:
                raise _not_understood(image)
        if paths and read:
            raise DataError("Files and images in memory are mixed; give them one after the other.")
    if not read and not isinstance(images, (np.ndarray, Tensor)):
        found = list_files(paths)
        return Opened(found, tuple(map(str, found)), size, reading)
    found_wrong = [warning for one in read for warning in one.warnings]
    if found_wrong:
        warnings.warn(found_wrong[0], RangeWarning, stacklevel=2)
    pixels = np.array([one.pixels for one in read], np.uint8).reshape(-1, 1, size, size)
    reasons = tuple(one.not_applicable for one in read)
    opened = _in_memory(torch.from_numpy(pixels), size)
    return replace(opened, steps=tuple(one.steps for one in read), not_applicable=reasons)


def _is_ready(images: Tensor, size: int) -> bool:
    """Whether a tensor is taken as it is: (n, 1, size, size) uint8."""
    return images.dtype == torch.uint8 and images.shape[1:] == (1, size, size)


def _in_memory(pixels: Tensor, size: int) -> Opened:
    return Opened(pixels, tuple(f"image {i}" for i in range(len(pixels))), size)


def _one_by_one(images: Images) -> Iterator[object]:
    """The parts of an input; from a generator they are taken when they are needed."""
    if isinstance(images, (str, os.PathLike, PIL.Image.Image, np.ndarray, Tensor)):
        yield images
    elif isinstance(images, (bytes, bytearray, memoryview, Mapping, io.IOBase)) or not isinstance(
        images, Iterable
    ):
        raise _not_understood(images)
    else:
        yield from images


def _not_understood(images: object) -> DataError:
    return DataError(
        f"Images of type {type(images).__name__} are not understood; give a file, a folder, a "
        f"Pillow image, an array, or a list of these."
    )


def read_images(
    images: Images,
    size: int,
    *,
    on_error: OnError = "raise",
    progress: Progress | None = None,
    reading: Reading = AS_DECLARED,
) -> LoadedImages:
    """Files, folders or images in memory as gray bytes of one size."""
    opened = open_images(images, size, reading=reading)
    if isinstance(opened.content, Tensor):
        places = tuple(range(len(opened)))
        return LoadedImages(
            opened.content,
            places,
            opened.sources,
            (),
            steps=opened.steps,
            not_applicable=opened.not_applicable,
        )
    return read_many(opened.content, size, on_error=on_error, progress=progress, reading=reading)


def list_files(given: Sequence[Path]) -> list[Path]:
    """Files in the order given; a folder stands for the images in it."""
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
