"""What a folder of images holds, before anything is trained on it or scored.

Every file is decoded as a training would decode it. Nothing here changes or resizes an image.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import PIL.Image

from squid.data.applicable import not_applicable
from squid.data.base import Progress
from squid.data.container import JPEG, PNG
from squid.data.decode import cores
from squid.data.dicom import DicomFacts, is_dicom
from squid.data.dicom.header import refusal
from squid.data.folder import Entry, Folder
from squid.data.gray import Gray
from squid.data.headers import raw_twins
from squid.data.image import read_gray, warnings_of
from squid.data.levels import Levels, Shades
from squid.data.reading import DicomReading, Reading
from squid.errors import DataError

SIGNATURES = {PNG: "PNG", JPEG: "JPEG", b"II*\0": "TIFF", b"MM\0*": "TIFF", b"BM": "BMP"}
"""How the files of each format begin."""
FLOAT = 32
"""Bits that are reported for values that are no integers."""


class Values(NamedTuple):
    """The range of one image's gray values, as they are stored or, in DICOM files, shown."""

    bits: int | None
    """Significant ones; 32 for floats, which lie between 0 and 1. None for DICOM files: what they
    store means nothing without their window, so their values are those shown, from 0 to 255."""
    low: float
    high: float


@dataclass(frozen=True)
class CheckedFile:
    """One file: where the folders put it, and what decoding it showed."""

    path: Path
    name: str
    """Its path below the folder."""
    split: str
    """The split folder it is in; `all` where there are none."""
    kind: str
    """Its class folder; '' where it is in none."""
    finding: str
    """'' where it is taken as normal."""
    patient: str | None
    facts: DicomFacts | None = None
    """What its header says; None where it is not DICOM."""
    left_out: str = ""
    """Why it is not taken, as the reports of a study; '' where it is."""
    bytes: int = 0
    format: str = ""
    size: tuple[int, int] = (0, 0)
    """Width and height in pixels."""
    values: Values | None = None
    digest: str = ""
    """Equal where the pixels are equal, at 8 bits and the image's own size."""
    steps: tuple[str, ...] = ()
    """What was done to it, in order."""
    warnings: tuple[str, ...] = ()
    not_applicable: str = ""
    """Why it has no score; '' where it has."""
    unreadable: str = ""
    """Why it cannot be read; '' where it can."""

    @property
    def group(self) -> str:
        """Split and class folder in one word, such as `train/normal`."""
        named = [part for part in (self.split if self.split != "all" else "", self.kind) if part]
        return "/".join(named) or "all"


class GroupRow(NamedTuple):
    """The files of one class folder of one split."""

    split: str
    kind: str
    taken_as: str
    """`normal`, or the finding."""
    images: int
    unreadable: int
    patients: int | None
    """None where patients are not known."""


class SharedPatients(NamedTuple):
    """Patients who have images in two groups."""

    first: str
    second: str
    patients: int
    example: tuple[str, str]
    """An image of one such patient in each group."""


@dataclass(frozen=True)
class FolderCheck:
    """All that is known of a folder of images."""

    root: Path
    files: tuple[CheckedFile, ...]
    others: dict[str, int]
    """Files that are not taken, by their ending."""
    warnings: tuple[str, ...]
    """What may be wrong with the folders' names."""

    @cached_property
    def images(self) -> list[CheckedFile]:
        """The files that are taken."""
        return [file for file in self.files if not file.left_out]

    @cached_property
    def read(self) -> list[CheckedFile]:
        """Those that can be read."""
        return [file for file in self.images if not file.unreadable]

    @property
    def unreadable(self) -> list[CheckedFile]:
        return [file for file in self.images if file.unreadable]

    @property
    def left_out(self) -> dict[str, int]:
        """How many files are not taken, by reason."""
        return _counted(file.left_out for file in self.files if file.left_out)

    @property
    def not_applicable(self) -> list[CheckedFile]:
        return [file for file in self.files if file.not_applicable]

    def groups(self) -> list[GroupRow]:
        """A row for each class folder of each split, in the order in which they were found."""
        members: dict[tuple[str, str, str], list[CheckedFile]] = defaultdict(list)
        for file in self.images:
            members[file.split, file.kind, file.finding].append(file)
        return [
            GroupRow(
                split,
                kind,
                finding or "normal",
                len(files),
                sum(bool(file.unreadable) for file in files),
                _count_patients(files),
            )
            for (split, kind, finding), files in members.items()
        ]

    def formats(self) -> dict[str, int]:
        return _counted(file.format for file in self.read)

    def sizes(self) -> dict[str, int]:
        return _counted(f"{file.size[0]} x {file.size[1]}" for file in self.read)

    def steps(self) -> dict[str, int]:
        """What reading did to how many images."""
        return _counted(step for file in self.read for step in file.steps)

    def headers(self) -> dict[str, dict[str, int]]:
        """What the headers of DICOM files say, by what a recipe or a calibration may ask of
        them."""
        facts = [file.facts for file in self.images if file.facts is not None]
        asked = {
            "modalities": (one.modality for one in facts),
            "views": (one.view for one in facts),
            "body parts": (one.body_part for one in facts),
            "machines": (one.manufacturer for one in facts),
            "stored bits": (str(one.bits or "") for one in facts),
            "text burned into the pixels": (
                one.burned_in for one in facts if one.burned_in == "YES"
            ),
        }
        return {what: _counted(name or "?" for name in names) for what, names in asked.items()}

    def values(self) -> dict[int | None, tuple[float, float, int]]:
        """By significant bits: the lowest and the highest value, and the number of images. DICOM
        files come first."""
        found: dict[int | None, list[Values]] = defaultdict(list)
        for file in self.read:
            if file.values is not None:
                found[file.values.bits].append(file.values)
        return {
            bits: (min(one.low for one in some), max(one.high for one in some), len(some))
            for bits, some in sorted(found.items(), key=lambda one: one[0] or 0)
        }

    def duplicates(self) -> list[list[CheckedFile]]:
        """Files with the same pixels; those that are in several groups come first."""
        copies: dict[str, list[CheckedFile]] = defaultdict(list)
        for file in self.read:
            copies[file.digest].append(file)
        found = [files for files in copies.values() if len(files) > 1]
        return sorted(found, key=lambda files: -len({file.group for file in files}))

    def shared_patients(self) -> list[SharedPatients]:
        """Pairs of groups with patients in common."""
        members: dict[str, dict[str, str]] = defaultdict(dict)
        for file in self.images:
            if file.patient is not None:
                members[file.group].setdefault(file.patient, file.name)
        shared = []
        for (a, first), (b, second) in combinations(members.items(), 2):
            if both := sorted(first.keys() & second.keys()):
                example = first[both[0]], second[both[0]]
                shared.append(SharedPatients(a, b, len(both), example))
        return shared


def check_folder(folder: Folder, progress: Progress | None = None) -> FolderCheck:
    """Decode every image of a folder and gather what is found."""
    root = folder.find_folder()
    given = folder.given(root).splits
    placed = [(split, entry) for split, entries in given.items() for entry in entries]
    if not placed:
        raise DataError(f"There is no image in {root}.")
    entries = [entry for _, entry in placed]
    known = folder.files(entries).patients or [None] * len(placed)
    twins = raw_twins([entry.facts for entry in entries], folder.dicom)
    reasons = [
        entry.left_out or _other_object(entry, folder.dicom) or twin
        for entry, twin in zip(entries, twins, strict=True)
    ]
    taken = [one for one, reason in zip(placed, reasons, strict=True) if not reason]
    trained = "train" if "train" in given else "all"
    warnings = folder.unrecognised([entry for split, entry in taken if split == trained])
    # Then the folders of DICOM files are those of an export: one for each study.
    by_study = bool(warnings) and any(entry.facts for entry in entries)
    waiting = [
        CheckedFile(
            entry.path,
            entry.name,
            split,
            "" if by_study else entry.kind,
            entry.finding,
            patient,
            entry.facts,
            reason,
        )
        for (split, entry), patient, reason in zip(placed, known, reasons, strict=True)
    ]
    checked: list[CheckedFile] = []
    with ThreadPoolExecutor(cores(), thread_name_prefix="check") as pool:
        for file in pool.map(lambda one: _look(one, folder.reading), waiting):
            checked.append(file)
            if progress is not None:
                progress(len(checked), len(waiting))
    return FolderCheck(root, tuple(checked), _others(root, entries), warnings)


def _other_object(entry: Entry, reading: DicomReading) -> str:
    """Why a DICOM file is no image to be read; '' where it is one."""
    return "" if entry.facts is None else refusal(entry.facts, reading).removeprefix("is ")


def _look(file: CheckedFile, reading: Reading) -> CheckedFile:
    """The file with what decoding it shows."""
    if file.left_out:
        return file
    known = {**vars(file)}
    try:
        known["bytes"] = file.path.stat().st_size
        known["format"] = _format(file.path)
        gray = read_gray(file.path, reading=reading)
    except (DataError, OSError) as error:
        reason = str(error).removeprefix(f"{file.path} ").removeprefix(f"{file.path}: ")
        return CheckedFile(**{**known, "unreadable": reason})
    picture = gray.picture()
    return CheckedFile(
        **{
            **known,
            "size": picture.size,
            "values": _values(gray),
            "digest": _digest(picture),
            "steps": gray.steps,
            "warnings": tuple(f"{file.name} {warning}" for warning in warnings_of(gray)),
            "not_applicable": gray.not_applicable or not_applicable(picture),
        }
    )


def _format(path: Path) -> str:
    """The format of a file by its first bytes, whatever its name says."""
    with path.open("rb") as file:
        head = file.read(132)
    if is_dicom(head):
        return "DICOM"
    return next((name for start, name in SIGNATURES.items() if head.startswith(start)), "unknown")


def _values(gray: Gray) -> Values:
    match gray.pixels:
        case PIL.Image.Image():
            low, high = gray.pixels.getextrema()
            return Values(8, float(low), float(high))  # type: ignore[arg-type]
        case Levels():
            stored = gray.pixels.values
            return Values(gray.pixels.bits, float(stored.min()), float(stored.max()))
        case Shades():
            shown = gray.pixels.to_bytes()
            return Values(None, float(shown.min()), float(shown.max()))
        case _:
            return Values(FLOAT, float(gray.pixels.min()), float(gray.pixels.max()))


def _digest(picture: PIL.Image.Image) -> str:
    # The size counts: two flat images of other shapes have the same bytes in another order.
    return hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).hexdigest()


def _others(root: Path, entries: Iterable[Entry]) -> dict[str, int]:
    """Visible files below the folder that are not taken as images, by their ending."""
    taken = {entry.path for entry in entries}
    endings = (
        path.suffix.lower() or "no ending"
        for path in root.rglob("*")
        if path not in taken
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
    )
    return _counted(endings)


def _count_patients(files: Sequence[CheckedFile]) -> int | None:
    if any(file.patient is None for file in files):
        return None
    return len({file.patient for file in files})


def _counted(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, the most frequent first."""
    return dict(Counter(values).most_common())
