"""Damaged and crafted DICOM files, and what reading them costs.

python benchmarks/damage.py --count 10000          # mutations of small files, then crafted ones

Every file has to be read or refused with a reason, in two seconds and 512 MiB.
"""

import argparse
import io
import json
import random
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import imagecodecs
import numpy as np
import pydicom
from numpy.typing import NDArray

from squid.data.image import read_image
from squid.data.levels import RangeWarning
from squid.errors import DataError

SECONDS, MEGABYTES = 2.0, 512
LARGEST = 300_000
"""Bytes of a file that is mutated: a mutation of a large one mostly hits its pixels."""
PER_PROCESS = 500
"""Mutations that one process reads, so that a crash says where it was."""
SECONDARY = b"1.2.840.10008.5.1.4.1.1.7\0"
KINDS = [f"1.2.840.10008.5.1.4.1.1.{kind}\0".encode() for kind in (2, 4)]
"""CT and MR, which would be refused before anything else is looked at."""
LENGTHS = [0, 1, 2, 7, 0x7FFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]
SYNTAXES = [f"1.2.840.10008.1.2.4.{kind}".encode() for kind in (50, 51, 57, 70, 80, 81, 90, 91)]
EXPLICIT, DEFLATED = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99"
RLE, JPEG_2000, JPEG_LOSSLESS = (f"1.2.840.10008.1.2.{kind}" for kind in ("5", "4.90", "4.70"))


@dataclass
class Cost:
    """What reading a number of files took."""

    read: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    """Files that raised anything but a sentence, or took too long."""
    slowest: float = 0.0
    """Seconds of the processor for one file."""
    slowest_file: str = ""
    megabytes: float = 0.0
    """Peak of the process above what it had before the first file."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The first words of each refusal, with how often it came."""


def seeds() -> list[bytes]:
    """The small files of pydicom that can be read as secondary captures."""
    folder = Path(pydicom.__file__).parent / "data"
    found = []
    for path in sorted(folder.rglob("*.dcm")):
        data = path.read_bytes()
        for kind in KINDS:
            data = data.replace(kind, SECONDARY)
        try:
            read_image(data)
        except DataError:
            continue
        if len(data) < LARGEST:
            found.append(data)
    return found


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The file with one to three faults."""
    damaged = bytearray(data)
    pixels = data.rfind(b"\xe0\x7f\x10\0")
    for _ in range(rng.randint(1, 3)):
        # A third of the faults each hit the header, the first bytes of the pixels, and all of them.
        ranges = ((132, pixels), (pixels, pixels + 256), (pixels, len(damaged)))
        first, end = ranges[rng.randrange(3)]
        place = rng.randrange(min(first, len(damaged) - 1), min(max(end, first + 1), len(damaged)))
        match rng.randrange(7):
            case 0:
                damaged[place] = rng.randrange(256)
            case 1:
                damaged[place : place + 16] = rng.randbytes(len(damaged[place : place + 16]))
            case 2:
                damaged[place : place + 4] = struct.pack("<I", rng.choice(LENGTHS))
            case 3:
                damaged[place : place + 2] = struct.pack("<H", rng.choice(LENGTHS) & 0xFFFF)
            case 4:
                del damaged[place : place + rng.choice([1, 2, 8, 64, 2**30])]
            case 5:
                damaged[place:place] = damaged[place : place + rng.choice([2, 8, 64, 4096])]
            case _:
                for syntax in SYNTAXES:
                    damaged = damaged.replace(syntax, rng.choice(SYNTAXES))
        if len(damaged) < 140:
            break  # cut off before its data set
    return bytes(damaged)


def mutations(start: int, end: int) -> Iterator[tuple[str, bytes]]:
    """Mutations by number: the same number is the same file."""
    files = seeds()
    for number in range(start, end):
        rng = random.Random(number)
        yield f"mutation {number}", mutate(rng.choice(files), rng)


def plain(rows: int = 8, columns: int = 8, pixels: bytes = bytes(128)) -> pydicom.Dataset:
    """An uncompressed secondary capture of 16 bits."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(EXPLICIT)
    dataset.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.UID("1.2")
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = rows, columns, 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 0
    dataset.add_new("PixelData", "OW", pixels)
    return dataset


def saved(dataset: pydicom.Dataset) -> bytes:
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def compressed(syntax: str, frame: bytes, rows: int = 8, columns: int = 8) -> bytes:
    """A file whose pixels are the given ones, whatever they hold."""
    dataset = plain(rows, columns)
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    dataset.PixelData = pydicom.encaps.encapsulate([frame], has_bot=False)
    dataset["PixelData"].VR = "OB"
    return saved(dataset)


def after_meta(data: bytes) -> int:
    """Where the data set begins: after the file's own group, whose length stands at 140."""
    return 144 + int.from_bytes(data[140:144], "little")


def crafted() -> dict[str, bytes]:
    """Files made to cost memory or time, by what they do."""
    whole = saved(plain())
    start = after_meta(whole)
    sequence = b"\x08\x00\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff"
    tiny = b"\x09\x00\x01\x10LO\x00\x00"
    deflated = plain()
    deflated.file_meta.TransferSyntaxUID = pydicom.uid.UID(DEFLATED)
    meta = saved(deflated)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(1024)) + packer.flush()
    noise: NDArray[np.uint16] = np.random.default_rng(0).integers(0, 4096, (64, 64), np.uint16)
    codestream = bytes(imagecodecs.jpeg2k_encode(noise, codecformat="j2k"))
    blank = np.zeros((5600, 5600), np.uint16)
    lossless = bytes(imagecodecs.jpeg8_encode(noise, lossless=True, bitspersample=16))
    lie = bytearray(lossless)
    size = lie.index(b"\xff\xc3") + 5
    lie[size : size + 4] = b"\xff\xff\xff\xff"
    return {
        "inflates to a gigabyte": meta[: after_meta(meta)] + bomb,
        "nests 3,000 sequences": whole[:start] + sequence * 3000 + whole[start:],
        "has a million elements": whole[:start] + tiny * 10**6 + whole[start:],
        "has a million fragments": compressed(JPEG_2000, codestream, 64, 64)[:-8]
        + b"\xfe\xff\x00\xe0\x00\x00\x00\x00" * 10**6,
        "claims 65,535 rows and columns": saved(plain(65535, 65535)),
        "claims 5,000 rows and columns": saved(plain(5000, 5000)),
        "claims many rows of run lengths": compressed(
            RLE, struct.pack("<3I", 2, 64, 66).ljust(64, b"\0") + b"\x81\0\x81\0", 5600, 5600
        ),
        "JPEG 2000 of another size": compressed(
            JPEG_2000, codestream[:8] + struct.pack(">2I", 60000, 60000) + codestream[16:], 64, 64
        ),
        "JPEG 2000 of tiny tiles": compressed(
            JPEG_2000, codestream[:24] + struct.pack(">2I", 1, 1) + codestream[32:], 64, 64
        ),
        "JPEG 2000 that is blank": compressed(
            JPEG_2000, bytes(imagecodecs.jpeg2k_encode(blank, codecformat="j2k")), 5600, 5600
        ),
        "lossless JPEG of another size": compressed(JPEG_LOSSLESS, bytes(lie), 64, 64),
        "JPEG of a thousand scans": compressed(
            JPEG_LOSSLESS, lossless + lossless[lossless.index(b"\xff\xda") :] * 1000, 64, 64
        ),
    }


def read_all(files: Iterator[tuple[str, bytes]]) -> Cost:
    """Reads each file in this process."""
    cost, reasons = Cost(), Counter[str]()
    warnings.simplefilter("ignore", RangeWarning)
    # Otherwise the peak is that of the imports, or of the process that started this one.
    Path("/proc/self/clear_refs").write_text("5")
    before = megabytes("VmRSS")
    for name, data in files:
        begun = time.process_time()
        try:
            read_image(data, "the file")
            cost.read += 1
        except DataError as error:
            cost.refused += 1
            reasons[" ".join(str(error).split()[2:7])] += 1
        except Exception as error:
            cost.wrong.append(f"{name}: {type(error).__name__}: {error}")
        taken = time.process_time() - begun
        if taken > cost.slowest:
            cost.slowest, cost.slowest_file = taken, name
        if taken > SECONDS:
            cost.wrong.append(f"{name}: {taken:.1f} s")
    cost.megabytes = megabytes("VmHWM") - before
    if cost.megabytes > MEGABYTES:
        cost.wrong.append(f"{cost.megabytes:.0f} MiB")
    cost.reasons = dict(reasons.most_common())
    return cost


def megabytes(kind: str) -> float:
    """The memory of this process now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(kind))


def attack(count: int, start: int = 0) -> list[Cost]:
    """Reads `count` mutations, and then the crafted files, in processes of their own."""
    costs = [
        _apart("--mutations", str(first), str(min(first + PER_PROCESS, start + count)))
        for first in range(start, start + count, PER_PROCESS)
    ]
    with TemporaryDirectory() as folder:
        for name, data in crafted().items():
            (Path(folder) / name).write_bytes(data)
        costs.append(_apart("--files", *map(str, Path(folder).iterdir())))
    return costs


def _apart(*arguments: str) -> Cost:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Cost(wrong=[f"{' '.join(arguments)}: ended with {done.returncode}: {done.stderr}"])
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="mutations to read")
    parser.add_argument("--mutations", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--files", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.mutations:
        print(json.dumps(asdict(read_all(mutations(*options.mutations)))))
    elif options.files:
        files = ((path.name, path.read_bytes()) for path in options.files)
        print(json.dumps(asdict(read_all(files))))
    else:
        costs = attack(options.count)
        wrong = [line for cost in costs for line in cost.wrong]
        slowest = max(costs, key=lambda cost: cost.slowest)
        print(f"{sum(c.read for c in costs)} read, {sum(c.refused for c in costs)} refused")
        print(f"slowest {slowest.slowest:.2f} s ({slowest.slowest_file})")
        print(f"peak {max(cost.megabytes for cost in costs):.0f} MiB above idle")
        reasons: Counter[str] = sum((Counter(cost.reasons) for cost in costs), Counter())
        print(*(f"{number:6} {reason}" for reason, number in reasons.most_common(20)), sep="\n")
        print("\n".join(wrong) or "nothing went wrong")
        raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
