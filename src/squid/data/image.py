"""One file -> one gray image in [0, 1], with a record of what was done to it.

Bytes come from outside, so they are checked before they are decoded: size, format, pixels.
"""

import io
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.ExifTags
import PIL.Image
import PIL.ImageOps
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.errors import DataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom"})
"""Endings of the files that are taken from a folder of images."""
FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
MAX_BYTES = 256 * 2**20
MAX_PIXELS = 80_000_000

# Set once for the process: warnings.catch_warnings is not safe in the threads that read files.
warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)


@dataclass(frozen=True)
class Image:
    """A decoded image."""

    pixels: Tensor
    """(1, h, w) float32 in [0, 1]."""
    steps: tuple[str, ...]
    """What was done to it, in order."""


def read_image(source: Path | str | bytes, name: str = "the uploaded image") -> Image:
    """A PNG, JPEG, TIFF or BMP, from a file or from its bytes (then `name` is used in messages)."""
    gray, steps = _read(source, name)
    if isinstance(gray, PIL.Image.Image):
        gray = np.array(gray).astype(np.float32) / np.float32(255.0)
    return Image(torch.from_numpy(gray)[None], steps)  # (1, h, w)


def read_resized(path: Path, size: int) -> NDArray[np.uint8]:
    """(size, size): `read_image` and `resize` in one.

    Eight-bit pixels never leave Pillow at full size: copying them would keep other threads waiting.
    """
    gray, _ = _read(path, str(path))
    return _resize(gray if isinstance(gray, PIL.Image.Image) else _to_bytes(gray), size)


Gray = PIL.Image.Image | np.ndarray
"""A picture of mode L, or (h, w) float32 in [0, 1] where a pixel has more than eight bits."""


def _read(source: Path | str | bytes, name: str) -> tuple[Gray, tuple[str, ...]]:
    """The image, and what was done to it; `name` is for messages about bytes."""
    if isinstance(source, bytes):
        data = source
    else:
        name, data = str(source), _read_bytes(Path(source))
    if len(data) > MAX_BYTES:
        raise DataError(f"{name} has more than {MAX_BYTES // 2**20} MiB; make it smaller.")
    if is_dicom(data):
        raise DataError(f"{name} is a DICOM file, which is not supported yet; save it as PNG.")
    try:
        return _decode(data)
    except DataError as error:
        raise DataError(f"{name} {error}") from None
    except Exception as error:  # on broken bytes a decoder may raise anything
        raise DataError(f"{name} is not a readable image ({_reason(error)}).") from error


def is_dicom(data: bytes) -> bool:
    """Whether a file is DICOM, whatever its name."""
    return data[128:132] == b"DICM"


def resize(pixels: Tensor, size: int) -> Tensor:
    """(1, h, w) uint8, or float in [0, 1] -> (1, size, size) uint8, by Pillow's bicubic.

    The aspect ratio is not kept.
    """
    return resize_all(pixels.numpy(), size)[0]


def resize_all(images: np.ndarray, size: int) -> Tensor:
    """(n, h, w) uint8, or float in [0, 1] -> (n, 1, size, size) uint8."""
    resized = np.empty((len(images), 1, size, size), dtype=np.uint8)
    for i, image in enumerate(images):
        resized[i, 0] = _resize(_to_bytes(image), size)
    return torch.from_numpy(resized)


def _resize(gray: PIL.Image.Image | np.ndarray, size: int) -> NDArray[np.uint8]:
    """An 8-bit image -> (size, size)."""
    if isinstance(gray, np.ndarray):
        if gray.shape == (size, size):
            return gray
        gray = PIL.Image.fromarray(np.ascontiguousarray(gray))
    return np.array(gray.resize((size, size), PIL.Image.Resampling.BICUBIC))


def _to_bytes(gray: np.ndarray) -> NDArray[np.uint8]:
    """Bytes stay as they are; floats in [0, 1] are rounded to them."""
    if gray.dtype == np.uint8:
        return gray
    scaled: NDArray[np.uint8] = (gray * 255.0).round().clip(0.0, 255.0).astype(np.uint8)
    return scaled


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            # A buffer of the file's own size: threads would wait for one of the largest size.
            size = found.st_size if stat.S_ISREG(found.st_mode) else MAX_BYTES
            return file.read(min(size, MAX_BYTES) + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def _decode(data: bytes) -> tuple[Gray, tuple[str, ...]]:
    with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as picture:
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise DataError(f"has {width} x {height} pixels, more than {MAX_PIXELS:,} in all.")
        picture.decodermaxblock = len(data)  # in one go: between parts, threads wait for each other
        frames = getattr(picture, "n_frames", 1)
        steps = [f"first of {frames} pages"] if frames > 1 else []
        upright: PIL.Image.Image = picture
        if picture.getexif().get(PIL.ExifTags.Base.Orientation, 1) in range(2, 9):
            steps.append("turned as its EXIF orientation says")
            upright = PIL.ImageOps.exif_transpose(picture)
        gray, how = _gray(upright)
    return gray, tuple(steps + how)


def _gray(picture: PIL.Image.Image) -> tuple[Gray, list[str]]:
    """A picture of any mode as gray, and what was done to it."""
    if picture.mode == "F":
        return _unit_range(np.array(picture, dtype=np.float32)), ["float taken as it is"]
    if picture.mode.startswith("I"):
        values = np.array(picture).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise DataError("has more than 16 bits a pixel; save it with 8 or 16.")
        return (values / 65535.0).astype(np.float32), ["16 bit scaled"]
    picture.load()  # before its file is closed
    if picture.mode == "L":
        return picture, []
    return picture.convert("L"), [f"gray from {picture.mode}"]


def _unit_range(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all() or values.min() < 0.0 or values.max() > 1.0:
        raise DataError("holds float pixels outside 0 to 1; scale them first.")
    return values


def _reason(error: Exception) -> str:
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"not a {', '.join(FORMATS)} file"
    return str(error) or type(error).__name__
