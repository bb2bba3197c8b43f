"""The stored values of a DICOM image, whatever their transfer syntax."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from squid.data.dicom import codestream
from squid.data.dicom.elements import File, fragments
from squid.data.dicom.header import Layout
from squid.data.dicom.tags import Tag
from squid.errors import DataError, MissingExtra

MAX_COMPRESSED = 64 * 2**20
"""Bytes of compressed pixels."""
MAX_DECODED = 32_000_000
"""Pixels that a decoder may make: it needs up to ten bytes for each."""
MAX_FRAGMENTS = 10_000
RLE_EXPANSION = 64
"""Bytes that RLE can make of one at most."""
MAX_DISTINCT = 65_536
"""Different values of an image with 32 bits."""
SAME = 2
"""Difference of red, green and blue in a gray pixel: lossy JPEG rounds them apart."""


class Syntax(NamedTuple):
    """A transfer syntax that is read."""

    name: str
    plugin: str = ""
    """The package or pydicom's plugin that decodes it; '' where pixels are not compressed."""


SYNTAXES = {
    "1.2.840.10008.1.2": Syntax("uncompressed"),
    "1.2.840.10008.1.2.1": Syntax("uncompressed"),
    "1.2.840.10008.1.2.1.99": Syntax("deflated"),
    "1.2.840.10008.1.2.2": Syntax("uncompressed, big endian"),
    "1.2.840.10008.1.2.4.50": Syntax("JPEG Baseline", "pillow"),
    "1.2.840.10008.1.2.4.51": Syntax("JPEG Extended", "imagecodecs"),
    "1.2.840.10008.1.2.4.57": Syntax("JPEG Lossless", "imagecodecs"),
    "1.2.840.10008.1.2.4.70": Syntax("JPEG Lossless SV1", "imagecodecs"),
    "1.2.840.10008.1.2.4.80": Syntax("JPEG-LS", "pyjpegls"),
    "1.2.840.10008.1.2.4.81": Syntax("JPEG-LS near lossless", "pyjpegls"),
    "1.2.840.10008.1.2.4.90": Syntax("JPEG 2000 lossless", "pylibjpeg"),
    "1.2.840.10008.1.2.4.91": Syntax("JPEG 2000", "pylibjpeg"),
    "1.2.840.10008.1.2.4.201": Syntax("HTJ2K lossless", "pylibjpeg"),
    "1.2.840.10008.1.2.4.202": Syntax("HTJ2K lossless RPCL", "pylibjpeg"),
    "1.2.840.10008.1.2.4.203": Syntax("HTJ2K", "pylibjpeg"),
    "1.2.840.10008.1.2.5": Syntax("RLE", "imagecodecs"),
}
"""One decoder each: another one is not tried where it fails."""


@dataclass(frozen=True)
class Stored:
    """Pixels as they are stored, one pattern of bits each, and the value of each pattern."""

    patterns: NDArray[np.uint8] | NDArray[np.uint16]
    """(h, w) indices into `values`."""
    values: NDArray[np.float64]
    """(n,) the stored value, with its sign, of each pattern."""


def syntax_of(file: File) -> Syntax:
    """The transfer syntax of a file; refuses those without a decoder."""
    if file.syntax not in SYNTAXES:
        raise DataError(
            f"has the transfer syntax '{file.syntax[:64]}', which is not read; convert it to JPEG "
            f"2000 or to an uncompressed one."
        )
    return SYNTAXES[file.syntax]


def read_pixels(file: File, layout: Layout) -> Stored:
    """The stored values of an image of one frame."""
    syntax = syntax_of(file)
    if Tag.PixelData not in file.dataset:
        raise DataError("has no pixels.")
    if syntax.plugin:
        array, photometric = _decode(file, layout, syntax)
        high = layout.stored - 1  # decoders put values in the lowest bits
    else:
        array, photometric, high = _uncompressed(file, layout), layout.photometric, layout.high
    if layout.samples == 3:
        array = _gray(array, photometric)
    return _patterns(array, high, layout.stored, layout.signed)


def _uncompressed(file: File, layout: Layout) -> NDArray[Any]:
    """(h, w) or (h, w, 3) values as they lie in the file, which are not copied."""
    count = layout.rows * layout.columns * layout.samples
    kind = np.dtype(f"{file.dataset.encoding.order}u{layout.allocated // 8}")
    value = file.dataset.found[Tag.PixelData].value
    if len(value) < count * kind.itemsize:
        raise DataError("ends within its pixels; export it again.")
    array: NDArray[Any] = np.frombuffer(value, kind, count)
    if layout.samples == 1:
        return array.reshape(layout.rows, layout.columns)
    if layout.planar == 0:
        return array.reshape(layout.rows, layout.columns, layout.samples)
    return np.moveaxis(array.reshape(layout.samples, layout.rows, layout.columns), 0, -1)


def _gray(colours: NDArray[Any], photometric: str) -> NDArray[Any]:
    """(h, w, 3) -> (h, w); refuses colours."""
    first, second, third = (colours[..., i].astype(np.int16) for i in range(3))
    if photometric in ("YBR_FULL", "YBR_FULL_422"):
        apart = max(np.abs(second - 128).max(), np.abs(third - 128).max())
    else:
        apart = max(np.abs(first - second).max(), np.abs(second - third).max())
    if apart > SAME:
        raise DataError("is in colour; give a gray image.")
    return np.ascontiguousarray(colours[..., 0])


def _patterns(array: NDArray[Any], high: int, stored: int, signed: bool) -> Stored:
    """Values as patterns of 8 or 16 bits. Unused bits differ in patterns, not in their values."""
    bits = array.dtype.itemsize * 8
    if bits == 32:
        different, places = np.unique(array, return_inverse=True)
        if len(different) > MAX_DISTINCT:
            raise DataError("has 32 bits with too many different values; save it with 16 bits.")
        patterns = places.reshape(array.shape).astype(np.uint16)
        codes = different.astype(np.int64)
    else:
        # A view but for big endian, whose bytes are swapped.
        patterns = array.astype(array.dtype.newbyteorder("="), copy=False)
        patterns = patterns.view(f"u{bits // 8}")
        codes = np.arange(2**bits, dtype=np.int64)
    values = codes >> (high + 1 - stored) & ((1 << stored) - 1)
    if signed:
        values = values - (values >> (stored - 1) << stored)
    return Stored(patterns, values.astype(np.float64))


def _decode(file: File, layout: Layout, syntax: Syntax) -> tuple[NDArray[Any], str]:
    """The values of compressed pixels, and their photometric interpretation."""
    frame = _frame(file)
    _check_frame(frame, layout, syntax)
    try:
        from squid.data.dicom import codecs
    except ImportError as error:
        raise MissingExtra(error.name or "pydicom", "dicom") from None
    if syntax.name == "RLE":
        return codecs.decode_run_lengths(frame, layout), layout.photometric
    return codecs.decode(frame, file.syntax, syntax.plugin, layout)


def _frame(file: File) -> bytes:
    """The compressed image: all fragments but the first, which is a table."""
    element = file.dataset.found[Tag.PixelData]
    if not element.undefined:
        raise DataError("has no compressed pixels, though it says so; export it again.")
    parts = []
    for number, part in enumerate(fragments(element.value)):
        if number > MAX_FRAGMENTS:
            raise DataError(f"has more than {MAX_FRAGMENTS:,} fragments; export it again.")
        parts.append(part)
    if sum(map(len, parts)) > MAX_COMPRESSED:
        raise DataError(f"has more than {MAX_COMPRESSED // 2**20} MiB of compressed pixels.")
    return b"".join(parts[1:])


def _check_frame(frame: bytes, layout: Layout, syntax: Syntax) -> None:
    """Refuses a frame whose size differs from that of the file, or costs too much memory."""
    pixels = layout.rows * layout.columns
    if pixels > MAX_DECODED:
        raise DataError(
            f"has {pixels:,} compressed pixels, more than {MAX_DECODED:,}; save it uncompressed."
        )
    if syntax.name == "RLE":
        if len(frame) * RLE_EXPANSION < pixels * layout.samples * layout.allocated // 8:
            raise DataError("ends within its pixels; export it again.")
        return
    jpeg_2000 = syntax.plugin == "pylibjpeg"
    found = codestream.jpeg_2000_size(frame) if jpeg_2000 else codestream.jpeg_size(frame)
    wanted = (layout.rows, layout.columns, layout.samples)
    if (found.rows, found.columns, found.samples) != wanted:
        raise DataError(
            f"holds {found.columns} x {found.rows} compressed pixels, but says "
            f"{layout.columns} x {layout.rows}; export it again."
        )
    if found.bits > layout.allocated:
        raise DataError(
            f"holds pixels of {found.bits} bits in {layout.allocated}; export it again."
        )
