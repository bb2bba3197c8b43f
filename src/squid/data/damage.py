"""Damage that decoders pass over: wrong checksums, broken JPEG codes, broken tags.

JPEG has no checksum. A changed bit is seen where libjpeg-turbo warns of what it had to skip or to
make up; one that gives other valid codes is not.
"""

import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import PIL.Image
import simplejpeg
from numpy.typing import NDArray

from squid.data.container import PNG, DamageError
from squid.errors import DataError

DECODERS = r"PIL\.(Tiff|Png|Jpeg|Mpo)ImagePlugin"
END = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))

_filters = threading.Lock()


def refuse_damage() -> None:
    """Turns what Pillow warns about, damaged tags or too many pixels, into errors.

    For the whole process, since warnings.catch_warnings is not safe in the threads that read files.
    """
    warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
    warnings.filterwarnings("error", category=UserWarning, module=DECODERS)
    # Some vendors give a tag several values where one is expected: no damage.
    warnings.filterwarnings("ignore", message="Metadata Warning", module=DECODERS)


@contextmanager
def damage_ignored() -> Iterator[None]:
    """Pillow's warnings about damage are ignored; by one thread at a time, since the filters are
    those of the process."""
    with _filters, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=DECODERS)
        yield


def with_right_checksums(data: bytes) -> bytes:
    """A PNG whose chunks have right checksums and an end; other files as they are."""
    if not data.startswith(PNG):
        return data
    parts, place = [PNG], len(PNG)
    while place + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind == b"IEND":
            break
        content = data[place + 4 : min(place + 8 + length, len(data) - 4)]
        parts += [
            struct.pack(">I", len(content) - 4), content, struct.pack(">I", zlib.crc32(content)),
        ]  # fmt: skip
        place += 12 + length
    return b"".join([*parts, END])


def decode_jpeg(picture: PIL.Image.Image, data: bytes, *, strict: bool) -> PIL.Image.Image:
    """The picture that Pillow opened, its pixels by a decoder that tells what is broken."""
    mode = {"L": "GRAY", "RGB": "RGB"}.get(picture.mode, "CMYK")
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(data, strict=strict)
        if (width, height) != picture.size:
            raise DataError("is not a readable image (it declares two sizes).")
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, mode, strict=strict)
    except ValueError as error:
        if "subsampling" in str(error):  # an unusual one, which only Pillow decodes
            return picture
        raise DamageError(f"is damaged: {error}") from None
    if mode == "CMYK":
        return picture  # Pillow knows which programs store it inverted
    decoded = PIL.Image.fromarray(pixels[..., 0] if mode == "GRAY" else pixels)
    decoded.info = picture.info  # with the orientation
    return decoded
