"""Damaged and hostile files given to the image reader."""

import io
import json
import struct
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import PIL.Image
import torch

from attacks.images import SIGNATURE, chunk, damaged, must_not_differ, seeds
from attacks.process import forked
from attacks.record import HANG, Setting, Tally

BLOCK = 1_000
"""Inputs of one process: one that ends it loses no more than these."""
SIZE = 32


def fuzz(setting: Setting) -> Tally:
    """Damaged PNG, JPEG, TIFF and BMP files, each read whole and resized."""
    tally, total = Tally("image reader: damaged files"), setting.times(40_000)
    for start in range(0, total, BLOCK):
        report = setting.folder / f"block-{start}.json"
        count = min(BLOCK, total - start)

        def work(start: int = start, count: int = count, report: Path = report) -> None:
            report.write_text(json.dumps(_block(setting, start, count)))

        outcome = forked(work, limit=BLOCK)
        tally.peak_mib = max(tally.peak_mib, outcome.peak_mib)
        tally.tried += count
        if outcome.code != 0:
            kind = "hangs" if outcome.timed_out else "tracebacks"
            tally.fault(kind, f"block {start}: exit {outcome.code} {outcome.err[-200:]}")
            continue
        _add(tally, json.loads(report.read_text()), outcome.waited, f"block {start}")
    return tally


def _add(tally: Tally, found: dict[str, object], waited: float, what: str) -> None:
    tally.refused += found["refused"]  # type: ignore[operator]
    tally.answered += found["answered"]  # type: ignore[operator]
    tally.slowest = max(tally.slowest, found["slowest"])  # type: ignore[call-overload]
    for kind, which in found["faults"]:  # type: ignore[attr-defined]
        tally.fault(kind, which)
    if waited > HANG:  # the time of each file is that of the processor
        tally.fault("hangs", f"{what}: waited for {waited:.1f} s")


def _block(setting: Setting, start: int, count: int) -> dict[str, object]:
    """Read the damaged files with the numbers from `start` on."""
    from squid.data.image import read_image

    warnings.simplefilter("ignore")
    originals = seeds()
    expected = {name: read_image(data).pixels for name, data in originals.items()}
    names = list(originals)
    faults: list[tuple[str, str]] = []
    refused = answered = 0
    slowest = 0.0
    for number in range(start, start + count):
        rng = setting.random(f"reader/{number}")
        name = names[number % len(names)]
        ways, data = damaged(originals[name], rng)
        what = f"{name}, {ways}, number {number}"
        began = time.process_time()
        pixels, fault = _read(data, setting.folder / "image")
        passed = time.process_time() - began
        slowest = max(slowest, passed)
        refused += pixels is None
        answered += pixels is not None
        if fault:
            faults.append(("tracebacks", f"{what}: {fault}"))
        elif passed > HANG:
            faults.append(("hangs", what))
        elif pixels is not None and not _right(pixels, expected[name], name, ways):
            faults.append(("wrong", what))
    return {"refused": refused, "answered": answered, "slowest": slowest, "faults": faults}


def _read(data: bytes, path: Path) -> tuple[torch.Tensor | None, str]:
    """The pixels or None where the file is refused; and what else happened, '' for nothing."""
    from squid.data.image import read_image, read_resized
    from squid.errors import DataError

    path.write_bytes(data)
    try:
        pixels = read_image(path).pixels
        small = read_resized(path, SIZE)
    except DataError:
        return None, ""
    except Exception:
        return None, traceback.format_exc(limit=-1).strip().splitlines()[-1]
    fits = small.pixels.shape == (SIZE, SIZE) and small.pixels.dtype == np.uint8
    return pixels, "" if fits else f"resized to {small.pixels.shape}"


def _right(pixels: torch.Tensor, expected: torch.Tensor, name: str, ways: str) -> bool:
    bounded = bool(torch.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1)
    same = pixels.shape == expected.shape and torch.equal(pixels, expected)
    return bounded and pixels.ndim == 3 and (same or not must_not_differ(name, ways))


def hostile(setting: Setting) -> Tally:
    """Files that are small on disk and large, slow or endless when they are decoded."""
    from squid.data.image import read_resized
    from squid.errors import DataError

    tally = Tally("image reader: bombs")
    for name, make in setting.some(dict(_bombs())).items():
        path = setting.folder / name
        path.write_bytes(make())

        def work(path: Path = path) -> None:
            warnings.simplefilter("ignore")
            try:
                read_resized(path, SIZE)
            except DataError as error:
                print(error, file=sys.stderr)
                sys.exit(2)

        # There is no right answer: zeros are an image like any other.
        tally.answered += tally.note(forked(work), name)
        path.unlink()
    return tally


def _bombs() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names and makers, so that one large file is held at a time."""
    for width, height in [(1, 80_000_000), (80_000_000, 1), (8_900, 8_900), (65_535, 65_535)]:
        for bits in (1, 8, 16):
            yield f"{width}x{height}x{bits}.png", partial(_png, width, height, bits)
    for kind in (b"zTXt", b"iTXt", b"iCCP"):
        yield f"{kind.decode()}.png", partial(_text_bomb, kind)
    yield "many-texts.png", partial(_many_chunks, 200_000)
    for pages in (2_000, 100_000):
        yield f"{pages}-pages.tif", partial(_pages, pages)
    yield "endless-pages.tif", _endless_pages
    for bits, format_ in [(32, 2), (32, 3), (16, 1), (8, 1)]:
        yield f"{bits}-bit-{format_}.tif", partial(_tiff, 8_900, 8_900, bits, format_)
    yield "huge.tif", partial(_tiff, 65_535, 65_535, 8, 1, rows=4)
    for scans in (20, 200, 2_000):
        yield f"{scans}-scans.jpg", partial(_scans, scans)
    yield "huge.jpg", partial(_jpeg_of_size, 65_535, 65_535)
    yield "huge.bmp", partial(_bmp_of_size, 80_000, 80_000)


def _png(width: int, height: int, bits: int) -> bytes:
    """All black, so that it packs well; only the first 80 million pixels are there."""
    row = 1 + -(-width * bits // 8)
    packer = zlib.compressobj(9)
    packed, left = [], min(height * row, 170_000_000)
    while left > 0:
        packed.append(packer.compress(bytes(min(left, 2**22))))
        left -= 2**22
    packed.append(packer.flush())
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return (
        SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", b"".join(packed)) + chunk(b"IEND", b"")
    )


def _small_png(extra: bytes) -> bytes:
    good = seeds()["png gray"]
    return good[:33] + extra + good[33:]


def _text_bomb(kind: bytes) -> bytes:
    packed = zlib.compress(bytes(2**28), 9)
    before = {"zTXt": b"k\0\0", "iTXt": b"k\0\1\0\0\0", "iCCP": b"k\0\0"}[kind.decode()]
    return _small_png(chunk(kind, before + packed))


def _many_chunks(count: int) -> bytes:
    return _small_png(chunk(b"tEXt", b"k\0v") * count)


def _pages(count: int) -> bytes:
    """One-pixel pages that all use the same pixel."""
    entries = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(273, 4, 1, 8), (278, 3, 1, 1), (279, 4, 1, 1)]
    directory = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", *entry) for entry in entries
    )
    length, first = len(directory) + 4, 10
    pages = [
        directory + struct.pack("<I", first + (i + 1) * length if i + 1 < count else 0)
        for i in range(count)
    ]
    return b"II*\0" + struct.pack("<I", first) + b"\x80\0" + b"".join(pages)


def _endless_pages() -> bytes:
    """The last page's successor is the first page."""
    data = bytearray(_pages(3))
    struct.pack_into("<I", data, len(data) - 4, 10)
    return bytes(data)


def _tiff(width: int, height: int, bits: int, format_: int, rows: int | None = None) -> bytes:
    """Deflated zeros in one strip; with `rows`, fewer of them than its header says."""
    packed = zlib.compress(bytes((rows or height) * width * bits // 8), 9)
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, 8)]
    entries += [(262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height)]
    entries += [(279, 4, 1, len(packed)), (339, 3, 1, format_)]
    directory = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", *entry) for entry in entries
    )
    padded = packed + b"\0" * (len(packed) % 2)
    return b"II*\0" + struct.pack("<I", 8 + len(padded)) + padded + directory + bytes(4)


def _scans(count: int) -> bytes:
    """A large progressive JPEG whose last scan is repeated."""
    buffer = io.BytesIO()
    PIL.Image.new("L", (8_900, 8_900), 90).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * count + b"\xff\xd9"


def _jpeg_of_size(width: int, height: int) -> bytes:
    data = bytearray(seeds()["jpeg gray"])
    place = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, place + 5, height, width)
    return bytes(data)


def _bmp_of_size(width: int, height: int) -> bytes:
    data = bytearray(seeds()["bmp gray"])
    struct.pack_into("<ii", data, 18, width, height)
    return bytes(data)
