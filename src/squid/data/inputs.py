"""What a user gives a detector to score: files, folders, or images in memory."""

import codecs
import io
import os
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.applicable import reasons_of
from squid.data.arrays import resize_array
from squid.data.base import Progress
from squid.data.decode import LoadedImages, OnError, read_many, stream
from squid.data.headers import raw_twins, read_headers
from squid.data.image import Resized, resize_picture
from squid.data.levels import RangeWarning
from squid.data.opening import special_kind
from squid.data.reading import AS_DECLARED, DicomReading, Reading
from squid.data.walk import Found, LeftOut, find_images, in_threads, summary
from squid.errors import DataError

Image = str | os.PathLike[str] | PIL.Image.Image | NDArray[np.generic] | Tensor
"""A file or a folder, a Pillow image, or an array or tensor of one image or several (see
`resize_array`)."""
Images = Image | Iterable[Image]
"""One of these, or several: all on disk or all in memory."""

MAX_LIST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Opened:
    """Images before they are read."""

    content: Tensor | tuple[Path, ...]
    """Pixels (n, 1, size, size) uint8, or files."""
    sources: tuple[str, ...]
    size: int
    reading: Reading = AS_DECLARED
    warnings: tuple[tuple[str, ...], ...] = ()
    """(n,) what may be wrong with each image in memory; of files, what is wrong is found when they
    are decoded."""
    steps: tuple[tuple[str, ...], ...] = ()
    """(n,) what was done to each image in memory."""
    not_applicable: tuple[str, ...] = ()
    """(n,) why an image in memory has no score, '' where it has."""
    left_out: LeftOut = ()
    """Paths that were not taken for images, each with the reason."""

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
            yield self._part(self.content, start, min(start + batch_size, len(self)))

    def read(self, on_error: OnError, progress: Progress | None) -> LoadedImages:
        """All images at once."""
        if isinstance(self.content, Tensor):
            return self._part(self.content, 0, len(self))
        loaded = read_many(
            self.content, self.size, on_error=on_error, progress=progress, reading=self.reading
        )
        return replace(loaded, left_out=self.left_out + loaded.left_out)

    def _part(self, pixels: Tensor, start: int, end: int) -> LoadedImages:
        """Some of the images in memory."""
        part = slice(start, end)
        return LoadedImages(
            pixels[part],
            tuple(range(start, end)),
            self.sources[part],
            (),
            self.warnings[part],
            self.steps[part],
            self.not_applicable[part],
        )


def open_images(
    images: Images, size: int, *, reading: Reading = AS_DECLARED, on_error: OnError = "raise"
) -> Opened:
    """The images of a user's input; files are not decoded yet."""
    if isinstance(images, Tensor) and _is_plain(images) and _is_ready(images, size):
        nothing = ((),) * len(images)
        return _in_memory(images, size, nothing, nothing, reasons_of(images))
    paths: list[Path] = []
    read: list[Resized] = []
    for image in _one_by_one(images):
        match image:
            case str() if not image:
                raise DataError("An empty path names no file; name one, or . for this folder.")
            case str() | os.PathLike():
                paths.append(Path(image))
            case PIL.Image.Image():
                read.append(resize_picture(image, size, f"image {len(read)}", reading=reading))
            case np.ndarray() | Tensor() if _is_plain(image):
                read += resize_array(image, size, f"image {len(read)}", reading=reading)
            case _:
                raise _not_understood(image)
        if paths and read:
            raise DataError("Files and images in memory are mixed; give them one after the other.")
    if not read and not isinstance(images, (np.ndarray, Tensor)):
        found = _without_raw_twins(list_files(paths, on_error), reading.dicom)
        sources = tuple(map(str, found.images))
        return Opened(found.images, sources, size, reading, left_out=found.left_out)
    pixels = np.array([one.pixels for one in read], np.uint8).reshape(-1, 1, size, size)
    opened = _in_memory(
        torch.from_numpy(pixels),
        size,
        tuple(one.warnings for one in read),
        tuple(one.steps for one in read),
        tuple(one.not_applicable for one in read),
    )
    named = (f"image {i} {text}" for i, one in enumerate(read) for text in one.warnings)
    if first := next(named, ""):
        warnings.warn(first, RangeWarning, stacklevel=2)
    return opened


def _without_raw_twins(found: Found, reading: DicomReading) -> Found:
    """The files but for raw images that are there for presentation too."""
    # Headers are read once more for this, so only where raw images are taken at all.
    if reading.for_processing == "refuse":
        return found
    both = list(zip(found.images, raw_twins(read_headers(found.images), reading), strict=True))
    left_out = [(str(path), reason) for path, reason in both if reason]
    images = tuple(path for path, reason in both if not reason)
    return Found(images, (*found.left_out, *left_out))


def _is_plain(image: object) -> bool:
    """True, or an error for a tensor whose numbers do not lie one after the other in memory."""
    if isinstance(image, Tensor) and (
        image.layout != torch.strided or image.is_nested or image.is_quantized or image.is_meta
    ):
        raise DataError(
            "Sparse, nested, quantised and meta tensors are not understood; give a plain one, e.g. "
            "by images.to_dense()."
        )
    return True


def _is_ready(images: Tensor, size: int) -> bool:
    """Whether the pixels of a tensor are taken as they are: (n, 1, size, size) uint8."""
    return images.dtype == torch.uint8 and images.shape[1:] == (1, size, size)


def _in_memory(
    pixels: Tensor,
    size: int,
    warnings: tuple[tuple[str, ...], ...],
    steps: tuple[tuple[str, ...], ...],
    reasons: tuple[str, ...],
) -> Opened:
    sources = tuple(f"image {i}" for i in range(len(pixels)))
    return Opened(pixels, sources, size, warnings=warnings, steps=steps, not_applicable=reasons)


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
    opened = open_images(images, size, reading=reading, on_error=on_error)
    return opened.read(on_error, progress)


def list_files(given: Sequence[Path], on_error: OnError = "raise") -> Found:
    """Files in the order given, each once; a folder stands for the images in it.

    With `skip`, what is not there is left to the reader of the files, who names it and goes on.
    """
    images: list[Path] = []
    left_out: list[tuple[str, str]] = []
    taken: set[str] = set()
    for path, kind in zip(given, in_threads(_kind, given), strict=True):
        found = Found((path,))
        if kind == "folder":
            found = find_images(path)
            if not found.images and on_error == "raise":
                others = summary(found.left_out)
                raise DataError(
                    f"{path} holds no image files (PNG, JPEG, TIFF, BMP, DICOM)"
                    f"{others and f'; {others}'}."
                )
        elif kind == "absent" and on_error == "raise":
            raise DataError(f"There is no file or folder {path}.")
        elif kind != "file" and on_error == "raise":
            raise DataError(f"{path} cannot be read: {kind}.")
        left_out += found.left_out
        for image, place in zip(found.images, _places(found.images), strict=True):
            if place in taken:
                left_out.append((str(image), "given twice"))
            else:
                images.append(image)
            taken.add(place)
    return Found(tuple(images), tuple(left_out))


def _kind(path: Path) -> str:
    """`file`, `folder`, `absent`, or what else it is."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, ValueError) as error:  # a ValueError: the name holds a NUL
        return f"{getattr(error, 'strerror', None) or error}"
    if stat.S_ISDIR(mode):
        return "folder"
    return f"it is {special}" if (special := special_kind(mode)) else "file"


def _places(images: Iterable[Path]) -> Iterator[str]:
    """Where each file is; one file has one place, whatever path leads to its folder."""
    folders: dict[Path, str] = {}
    for image in images:
        if image.parent not in folders:
            folders[image.parent] = os.path.realpath(image.parent)
        yield os.path.join(folders[image.parent], image.name)


def read_file_list(source: Path | str) -> list[Path]:
    """The paths in a list, one in each line or separated by NUL; `-` is the standard input.

    Relative paths are taken from the working directory, as `find` writes them.
    """
    name = "The standard input" if str(source) == "-" else str(source)
    try:
        if str(source) == "-":
            data = sys.stdin.buffer.read(MAX_LIST_BYTES + 1)
        else:
            with open(source, "rb") as file:  # a pipe as well: <(find ...)
                data = file.read(MAX_LIST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{name} cannot be read: {reason}.") from None
    if len(data) > MAX_LIST_BYTES:
        raise DataError(f"{name} has more than {MAX_LIST_BYTES // 2**20} MiB; split the list.")
    data = data.removeprefix(codecs.BOM_UTF8)
    lines = data.split(b"\0") if b"\0" in data else data.replace(b"\r\n", b"\n").split(b"\n")
    paths = [Path(os.fsdecode(line)) for line in lines if line.strip()]
    if not paths:
        raise DataError(f"{name} names no file; write one path in each line.")
    return paths
