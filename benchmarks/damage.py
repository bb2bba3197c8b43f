"""Damaged and crafted DICOM files, and what reading them costs.

python benchmarks/damage.py --count 10000          # mutations of small files, then crafted ones
python benchmarks/damage.py --count 10000 --out benchmarks/results/studies/dicom-damage.json

Every file has to be read or refused with a reason, in two seconds and 512 MiB: its image, and its
header for DICOM results. Of some images that are read, all results are made as well.
"""

import argparse
import io
import json
import random
import resource
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, TypeVar

import imagecodecs
import numpy as np
import pydicom
from numpy.typing import NDArray

from squid.data.image import Image, read_image
from squid.detector import Prediction
from squid.dicom import Algorithm, results
from squid.dicom.source import Source
from squid.errors import DataError
from squid.run import commit

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
RESULTS_EVERY = 5
"""Results are made of one in so many mutations, if it is read: they take longer than reading."""
PREDICTION = Prediction("the file", 3.2, 0.05, 0.9, True, ("a step",), rarity="1 in 20")
ALGORITHM = Algorithm("squid", "0", "ab" * 32, "run", "cd" * 32, 2.75, 0.1)
T = TypeVar("T")
RLE, JPEG_2000, JPEG_LOSSLESS = (f"1.2.840.10008.1.2.{kind}" for kind in ("5", "4.90", "4.70"))


@dataclass
class Cost:
    """What reading a number of files took."""

    read: int = 0
    refused: int = 0
    headers: int = 0
    """Files whose header results could refer to."""
    results: int = 0
    """Images of which report, capture and presentation state were made."""
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
    """Reads each file in this process, as an image and as the source of results."""
    cost, reasons = Cost(), Counter[str]()
    warnings.simplefilter("ignore")
    # Otherwise the peak is that of the imports, or of the process that started this one.
    Path("/proc/self/clear_refs").write_text("5")
    before = megabytes("VmRSS")
    with NamedTemporaryFile() as place:
        path = Path(place.name)
        for number, (name, data) in enumerate(files):
            path.write_bytes(data)
            image = _measured(cost, name, partial(read_image, data, "the file"), reasons)
            cost.read += image is not None
            header = _measured(cost, name, partial(Source.of, path))
            cost.headers += header is not None
            if image is not None and header is not None and number % RESULTS_EVERY == 0:
                cost.results += _measured(cost, name, partial(_results, path, image)) is not None
    cost.refused = reasons.total()
    cost.megabytes = megabytes("VmHWM") - before
    if cost.megabytes > MEGABYTES:
        cost.wrong.append(f"{cost.megabytes:.0f} MiB")
    cost.reasons = dict(reasons.most_common())
    return cost


def _measured(
    cost: Cost, name: str, task: Callable[[], T], reasons: Counter[str] | None = None
) -> T | None:
    """What a task gives; None where it refuses the file. Anything else it raises is wrong, and so
    is the time that it takes beyond the limit."""
    answer, begun = None, time.process_time()
    try:
        answer = task()
    except DataError as error:
        if reasons is not None:
            reasons[" ".join(str(error).split()[2:7])] += 1
    except Exception as error:
        cost.wrong.append(f"{name}: {type(error).__name__}: {error}")
    taken = time.process_time() - begun
    if taken > cost.slowest:
        cost.slowest, cost.slowest_file = taken, name
    if taken > SECONDS:
        cost.wrong.append(f"{name}: {taken:.1f} s")
    return answer


def _results(path: Path, image: Image) -> int:
    """Makes all DICOM results of an image and writes them; gives their number."""
    pixels = image.pixels[0].numpy()
    heatmap: NDArray[np.float32] = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    made = results(path, PREDICTION, pixels, heatmap, algorithm=ALGORITHM, gsps=True)
    for instance in made:
        instance.save_as(io.BytesIO(), enforce_file_format=True)
    return len(made)


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
    parser.add_argument("--out", type=Path, help="a JSON file for the record")
    parser.add_argument("--mutations", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--files", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.mutations:
        print(json.dumps(asdict(read_all(mutations(*options.mutations)))))
    elif options.files:
        files = ((path.name, path.read_bytes()) for path in options.files)
        print(json.dumps(asdict(read_all(files))))
    else:
        record = measure(options.count)
        text = json.dumps(record, indent=1)
        if options.out is not None:
            options.out.write_text(text + "\n")
        print(text)
        raise SystemExit(bool(record["wrong"]))


def measure(count: int) -> dict[str, Any]:
    """The attack with what it took, for a record."""
    begun = time.monotonic()
    *mutated, bombs = attack(count)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = [*mutated, bombs]
    slowest = max(costs, key=lambda cost: cost.slowest)
    reasons: Counter[str] = sum((Counter(cost.reasons) for cost in mutated), Counter())
    return {
        "command": f"python benchmarks/damage.py --count {count}",
        "date": date.today().isoformat(),
        "commit": commit(),
        "mutations": {
            "first_seed": 0,
            "count": count,
            "read": sum(cost.read for cost in mutated),
            "refused": sum(cost.refused for cost in mutated),
            "headers": sum(cost.headers for cost in mutated),
            "results": sum(cost.results for cost in mutated),
        },
        "crafted": {"count": len(crafted()), "read": bombs.read, "refused": bombs.refused},
        "limits": {"seconds": SECONDS, "megabytes": MEGABYTES},
        "slowest": {"seconds": round(slowest.slowest, 3), "file": slowest.slowest_file},
        "megabytes": {
            "mutations": round(max(cost.megabytes for cost in mutated)),
            "crafted": round(bombs.megabytes),
        },
        "wrong": [line for cost in costs for line in cost.wrong],
        "wall_seconds": round(time.monotonic() - begun),
        "cpu_seconds": round(children.ru_utime + children.ru_stime),
        "reasons": dict(reasons.most_common(20)),
    }


if __name__ == "__main__":
    main()
