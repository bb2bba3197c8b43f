"""The elements of a DICOM file, found within limits on their number, depth and size.

pydicom trusts what it reads: 300 kilobytes can inflate to a gigabyte, and a few thousand nested
sequences end its recursion. So a file is walked here first, in one loop that copies nothing and
keeps slices of the elements it meets at the top level.
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from squid.data.dicom.tags import Tag
from squid.errors import DataError

MAX_ELEMENTS = 100_000
MAX_DEPTH = 32
"""Sequences within sequences."""
MAX_INFLATED = 96 * 2**20
"""Bytes that a deflated file may have; the largest radiographs have 30 MiB."""
MAX_TEXT = 1024
"""Bytes of a value that are read as text."""

PREAMBLE = 132
FIRST_NUMBERS = {0x0002: 0x0002, 0x0008: 0x0018}
"""The groups that a file can begin with, and the highest number of their first element."""
UNDEFINED = 0xFFFFFFFF
ITEM, END_OF_ITEM, END_OF_SEQUENCE = 0xFFFEE000, 0xFFFEE00D, 0xFFFEE0DD
LONG = frozenset({b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV"} | {b"UC", b"UN"})
LONG |= {b"UR", b"UT", b"UV"}
"""Value representations whose length has four bytes."""


class Encoding(NamedTuple):
    """How elements are written."""

    explicit: bool
    """Whether each names its value representation."""
    order: str
    """`<` for little endian, `>` for big endian."""


META = Encoding(True, "<")
"""How the file's own group is written, whatever the rest has."""
DEFLATED, BIG = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2"
"""Transfer syntaxes that change how elements are written."""


class Element(NamedTuple):
    """A value as it is stored."""

    value: memoryview
    undefined: bool
    """Whether it has no length: a sequence, or compressed pixels."""


@dataclass(frozen=True)
class Elements:
    """A data set, or an item of a sequence."""

    found: Mapping[int, Element]
    encoding: Encoding

    def __contains__(self, tag: int) -> bool:
        return tag in self.found and len(self.found[tag].value) > 0

    def raw(self, tag: int) -> bytes:
        """The beginning of a value without its padding; b'' where it is absent."""
        value = self.found[tag].value[:MAX_TEXT] if tag in self.found else b""
        return bytes(value).strip(b" \0")

    def texts(self, tag: int) -> tuple[str, ...]:
        """The values of a text element; () where it is absent."""
        text = self.raw(tag).decode("utf-8", "replace")
        return tuple(part.strip(" \0") for part in text.split("\\")) if text else ()

    def text(self, tag: int) -> str:
        """The first of the values; '' where it is absent."""
        return next(iter(self.texts(tag)), "")

    def numbers(self, tag: int) -> tuple[float, ...]:
        """The numbers of a text element; NaN for a value that is none, so that each keeps its
        place. () where the element is absent."""
        return tuple(map(_number, self.texts(tag)))

    def pairs(self, first: int, second: int) -> list[tuple[int, float, float]]:
        """Place and numbers of the values of two elements that belong together, where both hold
        a number."""
        both = zip(self.numbers(first), self.numbers(second), strict=False)
        return [
            (place, one, other)
            for place, (one, other) in enumerate(both)
            if math.isfinite(one) and math.isfinite(other)
        ]

    def words(self, tag: int) -> tuple[int, ...]:
        """The values of an element of unsigned 16-bit numbers; () where it is absent."""
        value = self.found[tag].value[:MAX_TEXT] if tag in self.found else b""
        return struct.unpack(f"{self.encoding.order}{len(value) // 2}H", value[: len(value) & ~1])

    def word(self, tag: int, default: int) -> int:
        """The first of them."""
        return next(iter(self.words(tag)), default)

    def item(self, tag: int) -> "Elements | None":
        """The first item of a sequence; None where there is none."""
        value = self.found[tag].value if tag in self.found else memoryview(b"")
        if len(value) < 8:
            return None
        _, length = _item_header(value, 0, self.encoding.order)
        end = len(value) if length == UNDEFINED else min(8 + length, len(value))
        return read_elements(value[:end], 8, self.encoding)


@dataclass(frozen=True)
class File:
    """A DICOM file."""

    meta: Elements
    dataset: Elements

    @property
    def syntax(self) -> str:
        """The UID of the transfer syntax: how elements and pixels are written."""
        return self.meta.text(Tag.TransferSyntaxUID)


def is_dicom(data: bytes) -> bool:
    """Whether a file is DICOM, whatever its name."""
    return data[128:PREAMBLE] == b"DICM"


def is_headerless(data: bytes) -> bool:
    """Whether a file begins with the first element of a data set, or of the file's own group,
    where DICOM files have a preamble."""
    if len(data) < 8 or is_dicom(data):
        return False
    group, number, length = struct.unpack_from("<HHI", data)
    begins = number <= FIRST_NUMBERS.get(group, -1)
    return begins and (_is_representation(data[4:6]) or length <= MAX_TEXT)


def read_file(data: bytes) -> File:
    """The elements of a file up to and with its pixels; they stay slices of `data`."""
    end = PREAMBLE

    def stop(tag: int, start: int) -> bool:
        nonlocal end
        end = start
        return tag >> 16 != 2

    meta = read_elements(memoryview(data), PREAMBLE, META, stop)
    syntax = meta.text(Tag.TransferSyntaxUID)
    if not syntax:
        raise DataError("is a DICOM file that names no transfer syntax; export it again.")
    rest = memoryview(_inflate(data, end)) if syntax == DEFLATED else memoryview(data)[end:]
    # Some files are not written as they say; the first element shows it.
    explicit = _is_representation(rest[4:6].tobytes())
    encoding = Encoding(explicit, ">" if syntax == BIG else "<")
    return File(meta, read_elements(rest, 0, encoding))


def _inflate(data: bytes, start: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        inflated = inflater.decompress(memoryview(data)[start:], MAX_INFLATED)
    except zlib.error as error:
        raise DataError(f"is a damaged DICOM file ({error}); export it again.") from None
    if inflater.unconsumed_tail:
        raise DataError(
            f"inflates to more than {MAX_INFLATED // 2**20} MiB; save it without deflation."
        )
    return inflated


def read_elements(
    data: memoryview,
    start: int,
    encoding: Encoding,
    stop: Callable[[int, int], bool] = lambda tag, start: False,
) -> Elements:
    """The elements of the top level from `start` to the pixels, or until `stop(tag, start)`."""
    found: dict[int, Element] = {}
    opened = (0, 0)  # the tag and the first byte of the value that has no length
    depth = 0
    for place, tag, value, length in _headers(data, start, encoding):
        if not depth and tag != ITEM and stop(tag, place):
            break
        if tag in (END_OF_ITEM, END_OF_SEQUENCE):
            if not depth:
                break
            depth -= 1
            if not depth:
                found[opened[0]] = Element(data[opened[1] : place], True)
        elif length == UNDEFINED:
            if not depth:
                opened = (tag, value)
            if tag == Tag.PixelData and not depth:
                found[tag] = Element(data[value:], True)
                break
            depth += 1
            if depth > MAX_DEPTH:
                raise DataError(f"nests sequences more than {MAX_DEPTH} deep; export it again.")
        elif not depth:
            found[tag] = Element(data[value : value + length], False)
            if tag == Tag.PixelData:
                break
            if value + length > len(data):
                raise DataError("is a damaged DICOM file: it ends within its header.")
    return Elements(found, encoding)


def _headers(
    data: memoryview, place: int, encoding: Encoding
) -> Iterator[tuple[int, int, int, int]]:
    """Start, tag, start of the value and its length of each element and delimiter in turn; what
    has no length is entered."""
    tag_of = struct.Struct(f"{encoding.order}HH").unpack_from
    long_of = struct.Struct(f"{encoding.order}I").unpack_from
    short_of = struct.Struct(f"{encoding.order}H").unpack_from
    for _ in range(MAX_ELEMENTS):
        if place + 8 > len(data):
            return
        group, number = tag_of(data, place)
        tag, value = group << 16 | number, place + 8
        kind = data[place + 4 : place + 6].tobytes()
        if group == 0xFFFE or not encoding.explicit or not _is_representation(kind):
            (length,) = long_of(data, place + 4)
        elif kind not in LONG:
            (length,) = short_of(data, place + 6)
        elif value + 4 <= len(data):
            (length,) = long_of(data, value)
            value += 4
        else:
            return
        yield place, tag, value, length
        place = value if length == UNDEFINED else value + length
    raise DataError(f"has more than {MAX_ELEMENTS:,} DICOM elements; export it again.")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_representation(kind: bytes) -> bool:
    """Whether two bytes can be a value representation."""
    return kind.isalpha() and kind.isupper()


def _item_header(data: memoryview, place: int, order: str) -> tuple[int, int]:
    """The tag and the length of an item."""
    group, number, length = struct.unpack_from(f"{order}HHI", data, place)
    return group << 16 | number, length


def fragments(pixels: memoryview) -> Iterator[memoryview]:
    """The parts of compressed pixels, the first of which is a table of offsets."""
    place = 0
    while place + 8 <= len(pixels):
        tag, length = _item_header(pixels, place, "<")
        if tag != ITEM or length == UNDEFINED:
            return
        yield pixels[place + 8 : place + 8 + length]
        place += 8 + length
