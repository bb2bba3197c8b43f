"""One file -> one gray image in [0, 1], with a record of what was done to it.

Bytes come from outside, so they are checked before they are decoded: size, format, pixels.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.applicable import FLAT, not_applicable
from squid.data.container import (
    MAX_PIXELS,
    DamageError,
    check_bytes,
    check_picture,
    count_pages,
)
from squid.data.damage import damage_ignored, decode_jpeg, refuse_damage, with_right_checksums
from squid.data.dicom import (
    HEADERLESS,
    DicomFacts,
    OtherObject,
    is_dicom,
    is_headerless,
    read_dicom,
)
from squid.data.dicom.header import gate
from squid.data.gray import Gray, gray_of
from squid.data.levels import Levels, RangeWarning, Shades, to_bytes
from squid.data.meaning import significant_bits
from squid.data.opening import read_bounded
from squid.data.reading import AS_DECLARED, Reading
from squid.errors import DataError, MissingExtra

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
    not_applicable: str = ""
    """Why no score means anything for it; '' where one does."""


@dataclass(frozen=True)
class Resized:
    """An image as bytes of one size."""

    pixels: NDArray[np.uint8]  # (size, size)
    steps: tuple[str, ...] = ()
    """What was done to it, in order."""
    warnings: tuple[str, ...] = ()
    """What may be wrong with it; each begins with a verb, before which its name is put."""
    not_applicable: str = ""
    """Why no score means anything for it; '' where one does."""


def read_image(
    source: Path | str | bytes,
    name: str = "the uploaded image",
    *,
    reading: Reading = AS_DECLARED,
) -> Image:
    """A PNG, JPEG, TIFF, BMP or DICOM image, from a file or from its bytes (then `name` is used in
    messages)."""
    gray, name = _read(source, name, reading)
    for warning in warnings_of(gray):
        warnings.warn(f"{name} {warning}", RangeWarning, stacklevel=2)
    match gray.pixels:
        case PIL.Image.Image():
            pixels = np.array(gray.pixels).astype(np.float32) / np.float32(255.0)
        case Levels() | Shades():
            pixels = gray.pixels.to_unit()
        case _:
            pixels = gray.pixels.astype(np.float32, copy=False)
    reason = gray.not_applicable or not_applicable(pixels)
    return Image(torch.from_numpy(pixels)[None], gray.steps, reason)  # (1, h, w)


def read_gray(path: Path, *, reading: Reading = AS_DECLARED) -> Gray:
    """A file as one gray image at its own size and depth."""
    gray, _ = _read(path, str(path), reading)
    return gray


def read_resized(path: Path, size: int, *, reading: Reading = AS_DECLARED) -> Resized:
    """`read_image` and `resize` in one.

    Eight-bit pixels never leave Pillow at full size: copying them would keep other threads waiting.
    """
    gray, _ = _read(path, str(path), reading)
    return resized(gray, size)


def resize_picture(
    picture: PIL.Image.Image, size: int, name: str, *, reading: Reading = AS_DECLARED
) -> Resized:
    """A Pillow image as `read_resized` reads its file, but for damage: Pillow, and not SQUID,
    decodes it, and passes over much of what is refused in a file."""

    def decode() -> Gray:
        check_picture(picture)
        return gray_of(picture, reading.bits)

    return resized(_guard(name, decode), size)


def _read(source: Path | str | bytes, name: str, reading: Reading) -> tuple[Gray, str]:
    """The image, and its name in messages."""
    if isinstance(source, bytes):
        data = source
    else:
        name, data = str(source), read_bounded(Path(source), MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise DataError(f"{name} has more than {MAX_BYTES // 2**20} MiB; make it smaller.")
    return _guard(name, lambda: _decode(data, reading)), name


def _guard(name: str, decode: Callable[[], Gray]) -> Gray:
    """The decoded image; whatever a decoder raises becomes one sentence about `name`."""
    try:
        return decode()
    except OtherObject as error:
        raise OtherObject(f"{name} {error}") from None
    except DataError as error:
        raise DataError(f"{name} {error}") from None
    except MissingExtra:
        raise
    except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError):
        raise DataError(
            f"{name} has too many pixels, the limit is {MAX_PIXELS:,}; make it smaller."
        ) from None
    except Exception as error:  # on broken bytes a decoder may raise anything
        raise DataError(f"{name} is not a readable image ({_reason(error)}).") from error


def _decode(data: bytes, reading: Reading) -> Gray:
    """The image in a file's bytes; messages begin with a verb."""
    if is_dicom(data):
        return read_dicom(data, reading.dicom)
    if is_headerless(data):
        raise DataError(f"is {HEADERLESS}")
    # Without a header, a file names no view and no body part, and a recipe may ask for some.
    reason = gate(DicomFacts(), reading.dicom)
    return replace(_decode_checked(data, reading), not_applicable=reason)


def _decode_checked(data: bytes, reading: Reading) -> Gray:
    """The image in the bytes of a PNG, JPEG, TIFF or BMP; damage is refused, or accepted where the
    recipe says so."""
    try:
        check_bytes(data)
        return _decode_picture(data, reading.bits)
    except DamageError as error:
        if reading.damaged == "refuse":
            raise DataError(f"{error}; save it again, or set data.damaged to accept.") from None
        damage = f"{error}; it was read nevertheless."
    with damage_ignored():
        gray = _decode_picture(with_right_checksums(data), reading.bits, strict=False)
    steps, found = ("read although damaged", *gray.steps), (damage, *gray.warnings)
    return replace(gray, steps=steps, warnings=found)


def _decode_picture(data: bytes, bits: int | None, *, strict: bool = True) -> Gray:
    """The first image of a PNG, JPEG, TIFF or BMP; when `strict`, damage is an error."""
    try:
        with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            check_picture(picture)
            # In one go: between parts, threads wait for each other.
            picture.decodermaxblock = len(data)
            frames = count_pages(picture)
            if picture.format == "JPEG":
                gray = gray_of(decode_jpeg(picture, data, strict=strict), bits)
            else:
                gray = gray_of(picture, bits, significant_bits(data))
    except UserWarning as warning:  # see `refuse_damage`
        raise DamageError(f"is damaged: {warning}") from None
    if frames == 1:
        return gray
    return replace(gray, steps=(f"first of {frames} pages", *gray.steps))


def resized(gray: Gray, size: int) -> Resized:
    """Bytes of one size, and whether a score of them means anything."""
    values: PIL.Image.Image | np.ndarray
    match gray.pixels:
        case Levels():
            values, pixels = gray.pixels.values, _resize(gray.pixels.to_bytes(), size)
        case Shades():
            values = gray.pixels.to_bytes()  # a window can make all values one gray
            pixels = _resize(values, size)
        case np.ndarray():
            values, pixels = gray.pixels, _resize(to_bytes(gray.pixels), size)
        case _:
            values, pixels = gray.pixels, _resize(gray.pixels, size)
    reason = gray.not_applicable or not_applicable(values)
    # Values that differ by less than a byte shows are one gray value to a method.
    if not reason and pixels.min() == pixels.max():
        reason = f"not applicable: {FLAT} once it is resized to bytes"
    return Resized(pixels, gray.steps, warnings_of(gray), reason)


def warnings_of(gray: Gray) -> tuple[str, ...]:
    """What may be wrong with an image, a small range of values among it; each begins with a verb,
    before which its name is put."""
    small = gray.pixels.small_range() if isinstance(gray.pixels, Levels) else ""
    return tuple(warning for warning in (*gray.warnings, small) if warning)


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


def _reason(error: Exception) -> str:
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"not a {', '.join(FORMATS)} or DICOM file"
    if "MAX_TEXT" in str(error):  # Pillow names its own constants
        return "its texts or its colour profile are too large"
    return str(error) or type(error).__name__
