"""What the DICOM files of a folder say: patients, labels, and which of them are not asked for."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from squid.data.dicom import DicomFacts, read_facts
from squid.data.dicom.header import gate, is_for_presentation, is_raw, refusal
from squid.data.reading import DicomReading
from squid.data.tables import read_table
from squid.data.walk import SUFFIXES, in_threads
from squid.errors import DataError

DICOM_SUFFIXES = frozenset({".dcm", ".dicom"})
LABELS = "labels.csv"
"""A table beside or above DICOM files, which mostly lie in one folder for each study."""
NORMAL_FINDINGS = frozenset({"", "normal", "0"})

RAW_TWIN = "for processing, and its study holds the image for presentation"

Facts = Sequence[DicomFacts | None]
"""What the header of each file says; None where it is not DICOM."""


def read_headers(paths: Sequence[Path]) -> Facts:
    """What each DICOM file says. Files whose endings are those of other images are not opened."""
    others = SUFFIXES - DICOM_SUFFIXES
    asked = [path for path in paths if path.suffix.lower() not in others]
    found = dict(zip(asked, in_threads(read_facts, asked), strict=True))
    return [found.get(path) for path in paths]


def not_asked_for(facts: Facts, reading: DicomReading) -> list[str]:
    """Why each file is left out of a dataset; '' where it is not, or is not DICOM. An archive's
    study holds reports and raw images as well, and other views."""
    both = zip(facts, raw_twins(facts, reading), strict=True)
    return ["" if one is None else _other(one, reading) or twin for one, twin in both]


def _other(one: DicomFacts, reading: DicomReading) -> str:
    """Why a DICOM file is no radiograph of those that the recipe asks for; '' where it is."""
    if reason := refusal(one, reading):
        return f"each {reason}".removesuffix(".")
    return gate(one, reading).removeprefix("not applicable: ")


def raw_twins(facts: Facts, reading: DicomReading) -> list[str]:
    """Why each raw image is left out whose study holds the image for presentation too, of the same
    view where both name one; '' for all other files. Both show one exposure of a patient."""
    shown: dict[str, set[str]] = defaultdict(set)
    for one in facts:
        if one is not None and is_for_presentation(one):
            shown[one.study_uid].add(one.view)
    return [
        RAW_TWIN if one is not None and _is_raw_twin(one, shown, reading) else "" for one in facts
    ]


def _is_raw_twin(one: DicomFacts, shown: Mapping[str, set[str]], reading: DicomReading) -> bool:
    # Where raw images are refused, each has that reason already.
    if reading.for_processing == "refuse" or not one.study_uid or not is_raw(one):
        return False
    views = shown.get(one.study_uid, set())
    return bool(views) and (not one.view or "" in views or one.view in views)


def patients_of(names: Sequence[str], facts: Facts) -> tuple[str, ...] | None:
    """The patient of each file; None where no file is DICOM.

    A study stands for a patient where none is named, or where all files name the same one, as
    exports without names do. A file that names no study either stands alone.
    """
    if not any(facts):
        return None
    distinct = not one_patient(facts)
    keys = [(distinct and one.patient) or one.study_uid if one is not None else "" for one in facts]
    return tuple(key or name for key, name in zip(keys, names, strict=True))


def one_patient(facts: Facts) -> bool:
    """Whether DICOM files of several studies all name the same patient, or none."""
    known = [one for one in facts if one is not None]
    return len({one.patient for one in known}) == 1 < len({one.study_uid for one in known})


class Label(NamedTuple):
    """A row of the table of labels."""

    finding: str
    """'' for a normal image."""
    columns: dict[str, str]
    """Its other columns."""


def read_labels(root: Path, names: Sequence[str], facts: Facts) -> tuple[Label | None, ...]:
    """The row of each file in the table in `root`; None where the table does not have it. The
    column `image` holds paths, or UIDs of images or studies."""
    rows = read_table(root / LABELS, "image", "finding")
    labels = {row["image"].strip(): _label(row) for row in rows}
    if len(labels) < len(rows):
        twice = Counter(row["image"].strip() for row in rows).most_common(1)[0][0]
        raise DataError(f"{root / LABELS} names '{twice}' twice; keep one row.")
    found = []
    for name, one in zip(names, facts, strict=True):
        keys = (name, one.sop_uid, one.study_uid) if one else (name,)
        found.append(next((labels[key] for key in keys if key and key in labels), None))
    return tuple(found)


def _label(row: Mapping[str, str]) -> Label:
    finding = (row["finding"] or "").strip()
    # A row with more cells than the header has them under None.
    others = {name: (cell or "").strip() for name, cell in row.items() if name is not None}
    others = {name: cell for name, cell in others.items() if name not in ("image", "finding")}
    return Label("" if finding.lower() in NORMAL_FINDINGS else finding, others)
