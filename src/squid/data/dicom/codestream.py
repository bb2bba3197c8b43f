"""Checks of compressed pixels before a decoder sees them: their size, and what costs memory.

A header of a few bytes decides how much a decoder allocates, and it may differ from that of the
DICOM file around it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from squid.data.container import check_bytes
from squid.errors import DataError

JPEG_2000 = b"\xff\x4f\xff\x51"
JP2_BOXES = 4096
"""Bytes in which a JPEG 2000 codestream begins, where boxes are put before it."""
START_OF_IMAGE, END = b"\xff\xd8", b"\xff\xd9"
JPEG_LS_FRAME = 0xF7
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {JPEG_LS_FRAME}
"""Markers before the size of a JPEG."""
SCAN = 0xDA

CAPABILITIES = frozenset({0x50, 0x52, 0x55, 0x57, 0x59, 0x5C, 0x5D, 0x5E, 0x60, 0x63, 0x64})
"""Segments of a JPEG 2000 main header that are taken."""
IN_TILES = frozenset({0x58, 0x5C, 0x5D, 0x5E, 0x61, 0x64})
"""Those of a tile's header: none that says anew how much memory is needed."""
TILE, DATA, CODING = 0x90, 0x93, 0x52
MAX_TILES = 1024
MAX_TILE_PARTS = 10_000
MAX_LAYERS = 100
SMALLEST_BLOCK, SMALLEST_PRECINCT = 8, 5
"""Binary logarithms of the pixels of a code block and of the side of a precinct."""


@dataclass(frozen=True)
class Size:
    """What a codestream says of its image."""

    rows: int
    columns: int
    samples: int
    bits: int


def jpeg_size(data: bytes) -> Size:
    """The size of a JPEG or JPEG-LS image."""
    check_bytes(data)
    if not data.startswith(START_OF_IMAGE) or END not in data[-64:]:
        raise DataError("has JPEG pixels that are cut short; export it again.")
    for marker, content in _jpeg_segments(data):
        if marker in FRAMES and len(content) >= 6:
            bits, rows, columns, samples = struct.unpack_from(">BHHB", content)
            return Size(rows, columns, samples, bits)
    raise DataError("has JPEG pixels without a size; export it again.")


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The marker and the content of each segment before the pixels."""
    place = len(START_OF_IMAGE)
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], struct.unpack_from(">H", data, place + 2)[0]
        if marker == 0xFF:  # filling
            place += 1
            continue
        yield marker, data[place + 4 : place + 2 + length]
        if marker == SCAN:
            return
        place += 2 + length


def jpeg_2000_size(data: bytes) -> Size:
    """The size of a JPEG 2000 image, whose tiles, blocks and precincts take bounded memory."""
    start = data.find(JPEG_2000, 0, JP2_BOXES)
    if start < 0 or start + 44 > len(data):
        raise DataError("has no JPEG 2000 pixels; export it again.")
    width, height, left, top, tile_width, tile_height, tile_left, tile_top = struct.unpack_from(
        ">8I", data, start + 8
    )
    samples, bits = struct.unpack_from(">HB", data, start + 40)
    if not tile_width or not tile_height:
        raise DataError("has JPEG 2000 tiles without pixels; export it again.")
    tiles = -(-(width - tile_left) // tile_width) * -(-(height - tile_top) // tile_height)
    if tiles > MAX_TILES:
        raise DataError(f"has {tiles:,} JPEG 2000 tiles, more than {MAX_TILES:,}; export it again.")
    _check_segments(data, start + 2)
    return Size(height - top, width - left, samples, (bits & 0x7F) + 1)


def _check_segments(data: bytes, place: int) -> None:
    """Follows the headers of a JPEG 2000 codestream and of its tiles."""
    taken, tile_end, parts = CAPABILITIES | {0x51}, 0, 0
    while place + 4 <= len(data):
        lead, marker, length = struct.unpack_from(">BBH", data, place)
        if lead != 0xFF:
            break
        if marker == TILE and place + 12 <= len(data):
            parts += 1
            part = struct.unpack_from(">I", data, place + 6)[0]
            taken, tile_end = IN_TILES, place + part if part else len(data)
            if parts > MAX_TILE_PARTS or tile_end <= place:
                raise DataError("has damaged JPEG 2000 tiles; export it again.")
        elif marker == DATA:
            place = tile_end
            if not tile_end or tile_end >= len(data) or data[tile_end : tile_end + 2] == END:
                return
            continue
        elif marker not in taken:
            raise DataError(f"has an unusual JPEG 2000 header (marker FF{marker:02X}); convert it.")
        elif marker == CODING:
            _check_coding(data[place + 4 : place + 2 + length])
        place += 2 + length
    raise DataError("has JPEG 2000 pixels that are cut short; export it again.")


def _check_coding(content: bytes) -> None:
    """Refuses a coding style that splits an image into very many parts."""
    if len(content) < 10:
        raise DataError("has a damaged JPEG 2000 header; export it again.")
    style, _, layers, _, levels, block_width, block_height = struct.unpack_from(">BBHBBBB", content)
    precincts = content[10 : 11 + levels] if style & 1 else b""
    # The lowest resolution may have small precincts: it is small itself.
    smallest = min((min(size & 15, size >> 4) for size in precincts[1:]), default=15)
    if (
        layers > MAX_LAYERS
        or levels > 32
        or (block_width & 15) + (block_height & 15) + 4 < SMALLEST_BLOCK
        or smallest < SMALLEST_PRECINCT
    ):
        raise DataError("has JPEG 2000 pixels in too many small parts; convert it.")
