"""A decoded picture of any mode as one upright gray image, with a record of what was done to it."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import PIL.ExifTags
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from squid.data.levels import ROWS, Levels, Shades, to_bytes
from squid.data.meaning import Meaning, is_scaled_up, meaning_of
from squid.errors import DataError

Value = TypeVar("Value", np.uint16, np.float32)


@dataclass(frozen=True)
class Gray:
    """A decoded image at its own size, and what a reader of its score must know."""

    pixels: PIL.Image.Image | Levels | Shades | NDArray[np.generic]
    """A picture of mode L, integers of more than eight bits, a DICOM file's stored values, or
    (h, w) uint8 or float in [0, 1]."""
    steps: tuple[str, ...] = ()
    """What was done to it, in order."""
    warnings: tuple[str, ...] = ()
    """What may be wrong with it; each begins with a verb, before which the file's name is put."""
    not_applicable: str = ""
    """Why no score means anything for it, as far as its file says; '' where one does."""

    def picture(self) -> PIL.Image.Image:
        """The image with 8 bits, at its own size."""
        match self.pixels:
            case PIL.Image.Image():
                return self.pixels
            case Levels() | Shades():
                return PIL.Image.fromarray(self.pixels.to_bytes())
            case _:
                return PIL.Image.fromarray(to_bytes(self.pixels))


def gray_of(picture: PIL.Image.Image, bits: int | None, png_bits: int = 0) -> Gray:
    """A picture of any mode as gray and upright. `bits` are the significant ones if they differ
    from what it declares, `png_bits` those of its chunk sBIT."""
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
        return Gray(values, tuple(steps))
    if upright.mode.startswith("I"):
        # What the recipe says counts more than what the file declares.
        if bits is not None:
            meaning, png_bits = Meaning(bits, inverted=meaning.inverted), 0
        levels = _levels(upright, meaning, png_bits)
        if meaning.least:
            steps.append(f"{meaning.least:,} subtracted, the least value that it declares")
        steps.append(f"{levels.bits} bit scaled")
        if levels.inverted:
            steps.append("inverted, since zero is white")
        return Gray(levels, tuple(steps))
    upright.load()  # before its file is closed
    mode = upright.mode
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        # What is under a transparent pixel is arbitrary, and so would be its score.
        if upright.getchannel("A").getextrema() != (255, 255):
            raise DataError("is partly transparent; save it without an alpha channel.")
    if upright.mode == "L":
        return Gray(upright, tuple(steps))
    return Gray(upright.convert("L"), (*steps, f"gray from {mode}"))


def _levels(picture: PIL.Image.Image, meaning: Meaning, png_bits: int) -> Levels:
    """Integers of a file with their significant bits, from the beginning of their range."""
    if picture.mode == "I":  # 32 bits
        extremes = np.array(picture.getextrema())
        if extremes.min() < 0 or extremes.max() > 65535:
            raise DataError("has negative pixels or more than 16 bits; save it with 8 or 16.")
    values = _to_array(picture, np.uint16)
    if meaning.least and (lowest := int(values.min())) < meaning.least:
        raise DataError(
            f"holds the value {lowest:,}, less than the {meaning.least:,} that it declares to be "
            "the least; set bits to the significant ones to read it from 0."
        )
    values -= np.uint16(meaning.least)
    declared = png_bits if png_bits and not is_scaled_up(values, png_bits) else meaning.bits
    return Levels(values, declared, meaning.inverted)


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
