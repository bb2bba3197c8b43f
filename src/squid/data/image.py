"""One file -> one gray image in [0, 1], with a record of what was done to it.

Bytes come from outside, so they are checked before they are decoded: size, format, pixels.
"""

import io
import os
import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL.ExifTags
import PIL.Image
import PIL.ImageOps
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.applicable import not_applicable
from squid.data.container import (
    MAX_PIXELS,
    check_bytes,
    check_size,
    count_pages,
    refuse_damage,
)
from squid.data.levels import ROWS, Levels, RangeWarning, to_bytes
from squid.data.meaning import Meaning, is_scaled_up, meaning_of, significant_bits
from squid.errors import DataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom"})
"""Endings of the files that are taken from a folder of images."""
FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
MAX_BYTES = 256 * 2**20

refuse_damage()


@dataclass(frozen=True)
class Image:
    """A decoded image."""

    pixels: Tensor
    """(1, h, w) float32 in [0, 1]."""
    steps: tuple[str, ...]
    """What was done to it, in order."""


@dataclass(frozen=True)
class Resized:
    """An image as bytes of one size."""

    pixels: NDArray[np.uint8]  # (size, size)
    warning: str = ""
    """What may be wrong with it; '' where nothing is."""
    not_applicable: str = ""
    """Why no score means anything for it; '' where one does."""


def read_image(
    source: Path | str | bytes, name: str = "the uploaded image", *, bits: int | None = None
) -> Image:
    """A PNG, JPEG, TIFF or BMP, from a file or from its bytes (then `name` is used in messages).

    `bits` are the significant ones of a 16-bit file, if they differ from what it declares.
    """
    gray, steps, name = _read(source, name, bits)
    if isinstance(gray, PIL.Image.Image):
        pixels = np.array(gray).astype(np.float32) / np.float32(255.0)
    elif isinstance(gray, Levels):
        pixels = gray.to_unit()
        if warning := range_warning(gray, name):
            warnings.warn(warning, RangeWarning, stacklevel=2)
    else:
        pixels = gray
    return Image(torch.from_numpy(pixels)[None], steps)  # (1, h, w)


def read_resized(path: Path, size: int, *, bits: int | None = None) -> Resized:
    """`read_image` and `resize` in one.

    Eight-bit pixels never leave Pillow at full size: copying them would keep other threads waiting.
    """
    gray, _, name = _read(path, str(path), bits)
    return resized(gray, size, name)


def resize_picture(
    picture: PIL.Image.Image, size: int, name: str, *, bits: int | None = None
) -> Resized:
    """A Pillow image as `read_resized` reads its file."""

    def decode() -> Decoded:
        check_size(*picture.size)
        return _gray_of(picture, bits)

    gray, _ = _guard(name, decode)
    return resized(gray, size, name)


Gray = PIL.Image.Image | Levels | NDArray[np.float32]
"""A picture of mode L, or what has more than eight bits a pixel: integers or floats in [0, 1]."""

Value = TypeVar("Value", np.uint16, np.float32)

Decoded = tuple[Gray, tuple[str, ...]]
"""An image and what was done to it."""


def _read(
    source: Path | str | bytes, name: str, bits: int | None
) -> tuple[Gray, tuple[str, ...], str]:
    """The image, what was done to it, and its name in messages."""
    if isinstance(source, bytes):
        data = source
    else:
        name, data = str(source), _read_bytes(Path(source))
    if len(data) > MAX_BYTES:
        raise DataError(f"{name} has more than {MAX_BYTES // 2**20} MiB; make it smaller.")
    if is_dicom(data):
        raise DataError(f"{name} is a DICOM file, which is not supported yet; save it as PNG.")
    gray, steps = _guard(name, lambda: _decode(data, bits))
    return gray, steps, name


def _guard(name: str, decode: Callable[[], Decoded]) -> Decoded:
    """The decoded image; whatever a decoder raises becomes one sentence about `name`."""
    try:
        return decode()
    except DataError as error:
        raise DataError(f"{name} {error}") from None
    except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError):
        raise DataError(
            f"{name} has too many pixels, the limit is {MAX_PIXELS:,}; make it smaller."
        ) from None
    except Warning as warning:
        raise DataError(f"{name} is damaged ({warning}); save it again.") from None
    except Exception as error:  # on broken bytes a decoder may raise anything
        raise DataError(f"{name} is not a readable image ({_reason(error)}).") from error


def resized(gray: Gray | np.ndarray, size: int, name: str) -> Resized:
    """Bytes of one size, with a warning where they are likely to be too dark."""
    values = gray.values if isinstance(gray, Levels) else gray
    warning = range_warning(gray, name) if isinstance(gray, Levels) else ""
    if isinstance(gray, Levels):
        gray = gray.to_bytes()
    elif isinstance(gray, np.ndarray):
        gray = to_bytes(gray)
    return Resized(_resize(gray, size), warning, not_applicable(values))


def range_warning(levels: Levels, name: str) -> str:
    """What to report about the range of values, with the image's name."""
    return f"{name} {found}" if (found := levels.small_range()) else ""


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
        resized[i, 0] = _resize(to_bytes(image), size)
    return torch.from_numpy(resized)


def _resize(gray: PIL.Image.Image | np.ndarray, size: int) -> NDArray[np.uint8]:
    """An 8-bit image -> (size, size)."""
    if isinstance(gray, np.ndarray):
        if gray.shape == (size, size):
            return gray
        gray = PIL.Image.fromarray(np.ascontiguousarray(gray))
    return np.array(gray.resize((size, size), PIL.Image.Resampling.BICUBIC))


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            # A buffer of the file's own size: threads would wait for one of the largest size.
            size = found.st_size if stat.S_ISREG(found.st_mode) else MAX_BYTES
            return file.read(min(size, MAX_BYTES) + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def _decode(data: bytes, bits: int | None) -> Decoded:
    check_bytes(data)
    with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as picture:
        check_size(*picture.size)
        picture.decodermaxblock = len(data)  # in one go: between parts, threads wait for each other
        frames = count_pages(picture)
        gray, steps = _gray_of(picture, bits, significant_bits(data))
    return gray, (f"first of {frames} pages",) * (frames > 1) + steps


def _gray_of(picture: PIL.Image.Image, bits: int | None, png_bits: int = 0) -> Decoded:
    """A picture of any mode as gray and upright, and what was done to it."""
    meaning = meaning_of(picture)  # a turned copy has no tags
    steps: list[str] = []
    upright: PIL.Image.Image = picture
    if picture.getexif().get(PIL.ExifTags.Base.Orientation, 1) in range(2, 9):
        steps.append("turned as its EXIF orientation says")
        upright = PIL.ImageOps.exif_transpose(picture)
    if upright.mode == "F":
        values = _unit_range(_to_array(upright, np.float32))
        steps.append("float taken as it is")
        if meaning.inverted:
            values = np.float32(1.0) - values
            steps.append("inverted, since zero is white")
        return values, tuple(steps)
    if upright.mode.startswith("I"):
        levels = _levels(upright, bits, meaning, png_bits)
        steps.append(f"{levels.bits} bit scaled")
        if levels.inverted:
            steps.append("inverted, since zero is white")
        return levels, tuple(steps)
    upright.load()  # before its file is closed
    mode = upright.mode
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        # What is under a transparent pixel is arbitrary, and so would be its score.
        if upright.getchannel("A").getextrema() != (255, 255):
            raise DataError("is partly transparent; save it without an alpha channel.")
    if upright.mode == "L":
        return upright, tuple(steps)
    return upright.convert("L"), (*steps, f"gray from {mode}")


def _levels(picture: PIL.Image.Image, bits: int | None, meaning: Meaning, png_bits: int) -> Levels:
    """Integers of a file with their significant bits: those asked for, else those declared."""
    if picture.mode == "I":  # 32 bits
        extremes = np.array(picture.getextrema())
        if extremes.min() < 0 or extremes.max() > 65535:
            raise DataError("has negative pixels or more than 16 bits; save it with 8 or 16.")
    values = _to_array(picture, np.uint16)
    declared = png_bits if png_bits and not is_scaled_up(values, png_bits) else meaning.bits
    return Levels(values, bits or declared, meaning.inverted)


def _to_array(picture: PIL.Image.Image, dtype: type[Value]) -> NDArray[Value]:
    """(h, w), some rows at a time: Pillow makes two more copies of what it gives NumPy."""
    width, height = picture.size
    values = np.empty((height, width), dtype)
    for start in range(0, height, ROWS):
        end = min(start + ROWS, height)
        values[start:end] = np.asarray(picture.crop((0, start, width, end)))
    return values


def _unit_range(values: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(values).all() or values.min() < 0.0 or values.max() > 1.0:
        raise DataError("holds float pixels outside 0 to 1; scale them first.")
    return values


def _reason(error: Exception) -> str:
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"not a {', '.join(FORMATS)} file"
    if "MAX_TEXT" in str(error):  # Pillow names its own constants
        return "its texts or its colour profile are too large"
    return str(error) or type(error).__name__
