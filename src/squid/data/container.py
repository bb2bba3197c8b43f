"""Checks of a file's bytes before a decoder sees them: checksums and budgets.

A few kilobytes can ask for gigabytes or minutes, and decoders pass over damage that they can.
"""

import struct
import zlib
from collections.abc import Iterator

import PIL.Image

from squid.errors import DataError

MAX_PIXELS = 80_000_000
MAX_DEEP_PIXELS = 40_000_000
"""Pixels of 32 bits, which Pillow and the copies of them need twice the memory for."""
MAX_SIDE = 65_535
"""The largest side of a JPEG; a longer one makes a resized image that is as long at first."""
MAX_CHUNKS = 100_000
MAX_SCANS = 100
"""Scans of a progressive JPEG, each of which goes over all pixels; files have about ten."""
MAX_PAGES = 1_000

PNG = b"\x89PNG\r\n\x1a\n"
JPEG, START_OF_SCAN = b"\xff\xd8\xff", b"\xff\xda"


class DamageError(DataError):
    """A file is damaged, but can perhaps still be decoded; the message begins with a verb."""


def check_bytes(data: bytes) -> None:
    """Refuses a PNG with a wrong checksum and a JPEG that takes minutes to decode."""
    if data.startswith(PNG):
        for number, (kind, content) in enumerate(png_chunks(data)):
            if kind == b"IHDR" and len(content) >= 8:
                check_size(*struct.unpack_from(">II", content))
            if number >= MAX_CHUNKS:
                raise DataError(f"has more than {MAX_CHUNKS:,} PNG chunks; save it again.")
    elif data.startswith(JPEG) and (scans := data.count(START_OF_SCAN)) > MAX_SCANS:
        raise DataError(f"has {scans:,} JPEG scans, more than {MAX_SCANS}; save it again.")


def check_picture(picture: PIL.Image.Image) -> None:
    """Refuses pictures, by their header, whose decoding takes too much memory."""
    check_size(*picture.size)
    width, height = picture.size
    if picture.mode in ("I", "F") and width * height > MAX_DEEP_PIXELS:
        raise DataError(
            f"has {width} x {height} pixels of 32 bits, more than {MAX_DEEP_PIXELS:,} in all; "
            "make it smaller, or save it with 8 or 16 bits."
        )


def check_size(width: int, height: int) -> None:
    """Refuses images whose decoding takes too much memory."""
    if not width * height:
        raise DataError("has no pixels.")
    if width * height > MAX_PIXELS:
        raise DataError(
            f"has {width} x {height} pixels, more than {MAX_PIXELS:,} in all; make it smaller."
        )
    if max(width, height) > MAX_SIDE:
        raise DataError(
            f"has {width} x {height} pixels, more than {MAX_SIDE:,} a side; make it smaller."
        )


def png_chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The kind and the content of each chunk of a PNG up to its end, with their checksums right."""
    view, place = memoryview(data), len(PNG)
    while place + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        end = place + 8 + length
        if end + 4 > len(data):
            raise DamageError("is damaged: it ends within a PNG chunk")
        if zlib.crc32(view[place + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise DamageError("is damaged: a checksum of the PNG is wrong")
        yield kind, view[place + 8 : end]
        if kind == b"IEND":
            return
        place = end + 4


def count_pages(picture: PIL.Image.Image) -> int:
    """How many pages a file has; a TIFF file chains them, so counting stops at a limit."""
    if picture.format != "TIFF":
        return int(getattr(picture, "n_frames", 1))
    pages = 1
    while pages <= MAX_PAGES:
        try:
            picture.seek(pages)
        except EOFError:
            picture.seek(0)
            return pages
        pages += 1
    raise DataError(f"has more than {MAX_PAGES:,} pages; save the first one by itself.")
