"""Image files of every kind, and ways to damage them."""

import io
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
import PIL.Image

WIDTH, HEIGHT = 28, 22
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def seeds() -> dict[str, bytes]:
    """Good files by name; the name begins with the format."""
    rng = np.random.default_rng(0)
    smooth = np.add.outer(np.arange(HEIGHT) * 5, np.arange(WIDTH) * 3)
    gray = np.uint8(smooth + rng.integers(0, 20, smooth.shape))
    deep = np.uint16(gray) * 257
    picture = PIL.Image.fromarray(gray)
    rgb, alpha = picture.convert("RGB"), picture.convert("RGBA")
    bits, palette = picture.convert("1"), picture.convert("P")
    sixteen = PIL.Image.fromarray(deep)
    floats = PIL.Image.fromarray(np.float32(gray) / 255)
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    page = {"save_all": True, "append_images": [picture, picture]}
    made = {
        "png gray": _saved(picture, "PNG"),
        "png 1 bit": _saved(bits, "PNG"),
        "png 16 bit": _saved(sixteen, "PNG"),
        "png 12 of 16 bit": _with_chunk(_saved(sixteen, "PNG"), b"sBIT", b"\x0c"),
        "png rgb": _saved(rgb, "PNG"),
        "png rgba": _saved(alpha, "PNG"),
        "png palette": _saved(palette, "PNG"),
        "png texts": _with_chunk(_saved(picture, "PNG"), b"tEXt", b"Comment\0chest"),
        "png animated": _saved(picture, "PNG", **page),
        "jpeg gray": _saved(picture, "JPEG"),
        "jpeg rgb": _saved(rgb, "JPEG"),
        "jpeg progressive": _saved(rgb, "JPEG", progressive=True),
        "jpeg cmyk": _saved(rgb.convert("CMYK"), "JPEG"),
        "jpeg turned": _saved(picture, "JPEG", exif=turned),
        "tiff gray": _saved(picture, "TIFF"),
        "tiff 16 bit": _saved(sixteen, "TIFF"),
        "tiff float": _saved(floats, "TIFF"),
        "tiff rgb": _saved(rgb, "TIFF"),
        "tiff white is zero": _saved(picture, "TIFF", tiffinfo={262: 0}),
        "tiff lzw": _saved(picture, "TIFF", compression="tiff_lzw"),
        "tiff deflate": _saved(sixteen, "TIFF", compression="tiff_adobe_deflate"),
        "tiff packbits": _saved(picture, "TIFF", compression="packbits"),
        "tiff jpeg": _saved(picture, "TIFF", compression="jpeg"),
        "tiff fax": _saved(bits, "TIFF", compression="group4"),
        "tiff pages": _saved(picture, "TIFF", **page),
        "bmp gray": _saved(picture, "BMP"),
        "bmp 1 bit": _saved(bits, "BMP"),
        "bmp rgb": _saved(rgb, "BMP"),
    }
    return made


def _saved(picture: PIL.Image.Image, format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format_, **options)
    return buffer.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file with its checksum."""
    return struct.pack(">I", len(content)) + kind + content + _crc(kind + content)


def _crc(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def _with_chunk(png: bytes, kind: bytes, content: bytes) -> bytes:
    after_header = 33
    return png[:after_header] + chunk(kind, content) + png[after_header:]


def repaired(png: bytes) -> bytes:
    """With right checksums, so that damage reaches the decoder."""
    made, place = bytearray(png), len(SIGNATURE)
    while place + 12 <= len(made):
        (length,) = struct.unpack_from(">I", made, place)
        end = place + 8 + length
        if end + 4 > len(made):
            break
        made[end : end + 4] = _crc(bytes(made[place + 4 : end]))
        place = end + 4
    return bytes(made)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    count = rng.randint(1, 16)
    data[start : start + count] = rng.randbytes(min(count, len(data) - start))


def _number(data: bytearray, rng: random.Random) -> None:
    """A number of two or four bytes that lies at a limit."""
    order, width = rng.choice("<>"), rng.choice("HI")
    value = rng.choice((0, 1, 0x7FFF, 0xFFFF) + (0x7FFFFFFF, 0xFFFFFFFF) * (width == "I"))
    if len(data) >= 4:
        struct.pack_into(order + width, data, rng.randrange(len(data) - 3), value)


def _delete(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, 64)]


def _double(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.randint(1, 64)]


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


WAYS: dict[str, Callable[[bytearray, random.Random], None]] = {
    "flip": _flip,
    "overwrite": _overwrite,
    "number": _number,
    "delete": _delete,
    "double": _double,
    "cut": _cut,
}


def damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One to three kinds of damage, and the damaged file."""
    made = bytearray(data)
    ways = rng.choices(list(WAYS), k=rng.choice((1, 1, 1, 2, 3)))
    for way in ways:
        if made:
            WAYS[way](made, rng)
    if data.startswith(SIGNATURE) and rng.random() < 0.5:
        return "+".join([*ways, "repaired"]), repaired(bytes(made))
    return "+".join(ways), bytes(made)


def must_not_differ(name: str, ways: str) -> bool:
    """Whether a damaged file may be refused or read as before, but not read as something else.

    A PNG file has checksums; of other formats only a file that was cut is surely incomplete.
    """
    return (name.startswith("png") and "repaired" not in ways) or ways == "cut"
