"""What a file declares about its pixel values: significant bits, and whether zero is white."""

from dataclasses import dataclass

import numpy as np
import PIL.Image
import PIL.TiffImagePlugin
from numpy.typing import NDArray

from squid.data.container import PNG, png_chunks
from squid.data.levels import WORD
from squid.errors import DataError

WHITE_IS_ZERO = 0
SIGNED = 2
PHOTOMETRIC, BITS_PER_SAMPLE, SAMPLE_FORMAT = 262, 258, 339
LEAST_SAMPLE, LARGEST_SAMPLE = 340, 341
"""Tags of TIFF 6.0; the last two are SMinSampleValue and SMaxSampleValue, the ends of the range of
possible values."""


@dataclass(frozen=True)
class Meaning:
    """How the values of a gray file of more than eight bits are to be read."""

    bits: int = WORD
    """Significant bits."""
    least: int = 0
    """The value at which the range begins, which is subtracted."""
    inverted: bool = False
    """Whether zero is white and Pillow has not inverted the pixels yet."""


def meaning_of(picture: PIL.Image.Image) -> Meaning:
    """What the tags of a TIFF file declare; others have 16 bits and black zeros."""
    if not isinstance(picture, PIL.TiffImagePlugin.TiffImageFile):
        return Meaning()
    tags = picture.tag_v2
    signed = _first(tags.get(SAMPLE_FORMAT, 1)) == SIGNED
    if signed and picture.mode == "L":
        raise DataError("has signed pixels of 8 bits; save it with unsigned ones.")
    # A sign takes one bit. Files of 32 bits are read where their values fit in 16.
    bits = min(_first(tags.get(BITS_PER_SAMPLE, 1)) - signed, WORD)
    largest = _first(tags.get(LARGEST_SAMPLE, 2**bits - 1))
    least = _first(tags.get(LEAST_SAMPLE, 0))
    least = least if 0 < least < largest else 0
    # Pillow inverts pixels of up to eight bits itself.
    wide = picture.mode == "F" or picture.mode.startswith("I")
    inverted = wide and tags.get(PHOTOMETRIC) == WHITE_IS_ZERO
    return Meaning(_bits_for(largest - least, bits), least, inverted)


def _bits_for(largest: float, bits: int) -> int:
    """The bits of a declared range: images of one detector then get the same scale, even if each
    declares its own maximum."""
    if not 1 <= largest < 2**bits:
        return bits
    return int(largest).bit_length()


def _first(value: object) -> int:
    """A tag's value, or the first where each channel has its own."""
    first = value[0] if isinstance(value, tuple) else value
    return int(first) if isinstance(first, (int, float)) else 0


def significant_bits(data: bytes) -> int:
    """The bits of gray that a PNG's chunk sBIT declares; 0 without one."""
    if data.startswith(PNG):
        for kind, content in png_chunks(data):
            if kind == b"sBIT":
                return content[0] if content else 0
            if kind == b"IDAT":
                break  # sBIT comes before the pixels
    return 0


def is_scaled_up(values: NDArray[np.uint16], bits: int) -> bool:
    """Whether values with so many significant bits fill the word, as PNG demands.

    PNG wants 12 bits scaled to the range of 16. Many writers keep them as they are instead: then no
    value is above 4,095, and values differ in bits that scaling would have left empty.
    """
    if bits >= WORD or values.max() >= 2**bits:
        return True
    return not (values & (2 ** (WORD - bits) - 1)).any()
