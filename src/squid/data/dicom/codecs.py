"""Decoders of compressed pixels: pydicom's plugins, and two that are better taken from imagecodecs.

pydicom has no decoder of 12-bit and lossless JPEG but a GPL one and gdcm, which has a history of
memory faults. libjpeg-turbo 3 (in imagecodecs, BSD) decodes both, so it is added as a plugin. Of
the decoders of run lengths, one panics on damaged files, one crashes and one takes seconds; so the
segments are found here, and each is decoded into memory of the size that it must have.
"""

import struct
from itertools import pairwise
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from pydicom.encaps import encapsulate
from pydicom.pixels.decoders.base import DecodeRunner, get_decoder
from pydicom.uid import JPEGExtended12Bit, JPEGLossless, JPEGLosslessSV1, RLELossless

from squid.data.dicom.header import Layout
from squid.errors import DataError

RLE_HEADER = 64
RLE_PADDING = 64
"""Bytes that a segment may have after its pixels."""
ADDED = "imagecodecs"
DECODER_DEPENDENCIES = {
    JPEGExtended12Bit: ("imagecodecs",),
    JPEGLossless: ("imagecodecs",),
    JPEGLosslessSV1: ("imagecodecs",),
}
"""What pydicom asks of a plugin: the packages that it needs for each transfer syntax."""


def is_available(uid: str) -> bool:
    """Whether a transfer syntax is decoded; pydicom asks it of every plugin."""
    return uid in DECODER_DEPENDENCIES


def decode_jpeg(source: bytes, runner: DecodeRunner) -> bytes:
    """The pixels of one frame, without padding between them."""
    pixels = imagecodecs.jpeg8_decode(source)
    runner.set_option("bits_allocated", 8 * pixels.dtype.itemsize)
    decoded: bytes = pixels.tobytes()
    return decoded


def _add_plugin() -> None:
    for uid in DECODER_DEPENDENCIES:
        decoder = get_decoder(uid)
        if ADDED not in decoder.available_plugins:
            decoder.add_plugin(ADDED, (__name__, decode_jpeg.__name__))


def has_plugin(syntax: str, plugin: str) -> bool:
    """Whether pixels of a transfer syntax can be decoded by that plugin here."""
    return syntax == RLELossless or plugin in get_decoder(syntax).available_plugins


def decode(frame: bytes, syntax: str, plugin: str, layout: Layout) -> tuple[NDArray[Any], str]:
    """(h, w) or (h, w, 3) values of a compressed frame, and its photometric interpretation."""
    options: dict[str, Any] = {
        "rows": layout.rows,
        "columns": layout.columns,
        "samples_per_pixel": layout.samples,
        "number_of_frames": 1,
        "bits_allocated": layout.allocated,
        "bits_stored": layout.stored,
        "pixel_representation": int(layout.signed),
        "photometric_interpretation": layout.photometric,
        "planar_configuration": layout.planar,
        "pixel_keyword": "PixelData",
    }
    # The frame alone, wrapped anew: pydicom never sees how the file divides it.
    source = encapsulate([frame], has_bot=False)
    try:
        array, properties = get_decoder(syntax).as_array(
            source, index=0, raw=True, decoding_plugin=plugin, **options
        )
    except Exception as error:  # a decoder may raise anything
        raise DataError("has damaged pixels, which cannot be decoded; export it again.") from error
    return array, str(properties["photometric_interpretation"])


def decode_run_lengths(frame: bytes, layout: Layout) -> NDArray[Any]:
    """(h, w) or (h, w, 3) values of an RLE frame: a segment for each byte of a value (PS3.5 G)."""
    size, count = layout.allocated // 8, layout.rows * layout.columns
    segments, *starts = struct.unpack("<16I", frame[:RLE_HEADER].ljust(RLE_HEADER, b"\0"))
    bounds = [*starts[:segments], len(frame)]
    ordered = all(first <= second for first, second in pairwise(bounds))
    if segments != size * layout.samples or bounds[0] < RLE_HEADER or not ordered:
        raise DataError("has damaged run lengths; export it again.")
    decoded = np.empty((layout.samples, count, size), np.uint8)
    room = bytearray(count + RLE_PADDING)
    for number, (first, end) in enumerate(pairwise(bounds)):
        try:
            found = imagecodecs.packbits_decode(frame[first:end], out=room)
        except Exception:  # its error is not public
            raise DataError("has damaged run lengths; export it again.") from None
        if len(found) < count:
            raise DataError("ends within its pixels; export it again.")
        plane = np.frombuffer(found, np.uint8, count)
        decoded[number // size, :, number % size] = plane
    values = decoded.view(f">u{size}")[..., 0].reshape(-1, layout.rows, layout.columns)
    return values[0] if layout.samples == 1 else np.moveaxis(values, 0, -1)


_add_plugin()
