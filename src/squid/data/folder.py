"""Any folder of images.

Recognised, in this order: `data.json` next to `images/` (split -> class -> names); `labels.csv`
(image -> finding, where an image is a path, or the UID of a DICOM file or of its study); split
folders `train`, `valid|val`, `test`, each with class folders or flat; class folders (`normal`,
`abnormal`; `good`, `Ungood`; `NORMAL`, `PNEUMONIA`; `normal_256` ...); and a flat folder, all
normal. Where one class folder is known to be normal, every other one holds anomalies, named by the
folder. Patients of DICOM files are those of their headers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from squid.data.base import FileDataConfig, Progress
from squid.data.dicom import DicomFacts
from squid.data.files import Unreadable, read_files, subfolders
from squid.data.groups import HEADERS
from squid.data.headers import (
    LABELS,
    not_asked_for,
    one_patient,
    patients_of,
    read_headers,
    read_labels,
)
from squid.data.image_set import (
    FileSet,
    ImageSet,
    Splits,
    check,
    digests,
    draw_groups,
    empty,
    join,
)
from squid.data.patients import compile_patient, match_patients
from squid.data.tables import inside, read_json
from squid.data.walk import LeftOut, find_images
from squid.errors import DataError

SPLITS = {"train": "train", "valid": "validation", "val": "validation", "test": "test"}
NORMAL_NAMES = ("normal", "normals", "good", "healthy")
REASONS = 3
"""Reasons that are named where no image is used."""
NO_LABEL = f"{LABELS} does not name them"
ANOMALOUS_NAMES = ("abnormal", "anomalous", "anomaly", "bad", "ungood", "pneumonia")


class Entry(NamedTuple):
    """A file of the folder."""

    path: Path
    name: str
    """Its path below the dataset's root."""
    finding: str
    """'' for a normal image."""
    kind: str = ""
    """Its class folder; '' where it is in none."""
    facts: DicomFacts | None = None
    """What its header says; None where it is not DICOM."""
    left_out: str = ""
    """Why it is not taken; '' where it is."""
    columns: tuple[tuple[str, str], ...] = ()
    """What the table of labels says besides, by the name of the column."""


class Given(NamedTuple):
    """What the folders give."""

    splits: dict[str, list[Entry]]
    """The files of each split, or all of them under `all`."""
    others: LeftOut = ()
    """Files that are no images, each with the reason."""


class Folder(FileDataConfig):
    """Images in folders; where no validation or test images are given, normals are held out."""

    name: Literal["folder"] = "folder"
    root: Path
    """Their folder. A relative path is taken from the working directory, then from the data
    folder."""
    holdout: float = Field(0.2, gt=0.0, le=0.5)
    """Share of the normals held out for each split that has to be made."""
    normal_names: tuple[str, ...] = NORMAL_NAMES
    """Class folders of normal images (in any case, with or without an ending such as _256)."""
    anomalous_names: tuple[str, ...] = ANOMALOUS_NAMES
    """Class folders that are anomalous even where no folder of normal images is next to them."""
    patient: str | None = None
    """Regular expression whose first group, found in a file's path, is its patient. Left out,
    DICOM files name their patients themselves."""
    unreadable: Unreadable = "refuse"
    """What to do with a file that is not a readable image."""

    @field_validator("patient")
    @classmethod
    def _check_patient(cls, patient: str | None) -> str | None:
        if patient is not None:
            compile_patient(patient)
        return patient

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        root = self.find_folder()
        given, left_out = self._asked_for(self.given(root))
        entries = [entry for found in given.values() for entry in found]
        images, warnings = read_files(
            self.files(entries), size, self.unreadable, progress, self.reading
        )
        if not len(images):
            raise _no_image(root, left_out + warnings)
        warnings += left_out + self.unrecognised(given.get("train", entries))
        if set(given) == {"all"}:
            return check(replace(self._divide(images), warnings=warnings))
        parts = {
            split: images.select(_named(images, {entry.name for entry in found}))
            for split, found in given.items()
        }
        splits = self._complete(parts, size)
        return check(replace(splits, warnings=warnings + splits.warnings))

    def given(self, root: Path) -> Given:
        """The files of each split, as the folders give them."""
        if (root / "data.json").is_file():
            return Given(self._from_json(root))
        others: LeftOut
        if (root / LABELS).is_file():
            found = find_images(root)
            table = str(root / LABELS)
            others = tuple(one for one in found.left_out if one[0] != table)
            return Given({"all": self._labelled(root, found.images)}, others)
        folders = subfolders(root)
        named = [("all", root)]
        if "train" in folders:
            named = [(split, folders[name]) for name, split in SPLITS.items() if name in folders]
        splits: dict[str, list[Entry]] = {split: [] for split, _ in named}
        others = ()
        for split, folder in named:
            found = find_images(folder)
            splits[split] += self._classes(root, folder, found.images)
            others += found.left_out
        return Given(splits, others)

    def _asked_for(self, given: Given) -> tuple[dict[str, list[Entry]], tuple[str, ...]]:
        """The files but for those without a label and for DICOM ones that are no radiographs or of
        other views and body parts, and warnings about all that is left out."""
        kept: dict[str, list[Entry]] = {}
        reasons = Counter(reason for _, reason in given.others)
        warnings: list[str] = []
        every = [entry for entries in given.splits.values() for entry in entries]
        facts = [entry.facts for entry in every]
        if self.patient is None and one_patient(facts):
            warnings.append("All DICOM files name one patient: each study is taken for a patient.")
        taken = [None if entry.left_out else entry.facts for entry in every]
        others = dict(zip(every, not_asked_for(taken, self.dicom), strict=True))
        for split, entries in given.splits.items():
            found = [(entry, entry.left_out or others[entry]) for entry in entries]
            reasons.update(reason for _, reason in found if reason)
            kept[split] = [entry for entry, reason in found if not reason]
        warnings += [
            f"{'1 file was' if count == 1 else f'{count} files were'} left out: {reason}."
            for reason, count in reasons.most_common()
        ]
        return kept, tuple(warnings)

    def _labelled(self, root: Path, paths: Sequence[Path]) -> list[Entry]:
        """The images with what the table of labels says of them."""
        names = [path.relative_to(root).as_posix() for path in paths]
        facts = read_headers(paths)
        labels = read_labels(root, names, facts)
        return [
            Entry(path, name, "", "", one, NO_LABEL)
            if label is None
            else Entry(path, name, label.finding, "", one, columns=tuple(label.columns.items()))
            for path, name, label, one in zip(paths, names, labels, facts, strict=True)
        ]

    def _classes(self, root: Path, folder: Path, paths: Sequence[Path]) -> list[Entry]:
        """The images below one folder; without known class folders all are normal."""
        kinds = subfolders(folder)
        has_normal = any(_is(name, self.normal_names) for name in kinds)
        entries: list[Entry] = []
        for path, facts in zip(paths, read_headers(paths), strict=True):
            kind = "" if path.parent == folder else path.relative_to(folder).parts[0]
            finding = self._finding(kind, has_normal) if kind else ""
            entries.append(Entry(path, path.relative_to(root).as_posix(), finding, kind, facts))
        return entries

    def _finding(self, kind: str, has_normal: bool) -> str:
        """What an image in the class folder `kind` shows."""
        if _is(kind, self.normal_names):
            return ""
        return kind if has_normal or _is(kind, self.anomalous_names) else ""

    def _from_json(self, root: Path) -> dict[str, list[Entry]]:
        try:
            table = read_json(root / "data.json")
            return {split: self._listed(root, table[split]) for split in ("train", "test")}
        except (AttributeError, TypeError, KeyError) as error:
            raise DataError(
                f"{root / 'data.json'} is not train and test -> class -> file names ({error})."
            ) from None

    def _listed(self, root: Path, classes: dict[str, Any]) -> list[Entry]:
        """The images of one split. Class '0' is normal; unlabelled images are in a nested table."""
        return [
            Entry(
                inside(root / "images", name),
                (Path("images") / name).as_posix(),
                "" if kind == "0" else self._finding(kind, has_normal=True),
            )
            for kind, names in classes.items()
            if isinstance(names, list)
            for name in names
        ]

    def files(self, entries: list[Entry]) -> FileSet:
        """Those files with their labels and patients, not decoded."""
        return FileSet(
            paths=tuple(entry.path for entry in entries),
            labels=np.array([int(bool(entry.finding)) for entry in entries], dtype=np.int64),
            names=tuple(entry.name for entry in entries),
            patients=self._patients(entries),
            findings=tuple(entry.finding for entry in entries),
            columns=_columns(entries),
        )

    def _patients(self, entries: list[Entry]) -> tuple[str, ...] | None:
        """The patient of each file by its path or its header; None where they are not known."""
        if self.patient is not None:
            return match_patients([entry.name for entry in entries], self.patient)
        return patients_of([e.name for e in entries], [e.facts for e in entries])

    def unrecognised(self, entries: list[Entry]) -> tuple[str, ...]:
        """A warning where no name of a class folder is known."""
        kinds = {entry.kind for entry in entries} - {""}
        known = (*self.normal_names, *self.anomalous_names)
        if not kinds or any(_is(kind, known) for kind in kinds):
            return ()
        return (
            f"No class folder is recognised: all {len(entries)} images are taken as healthy "
            f"(folders of healthy images are called {', '.join(self.normal_names)}).",
        )

    def _divide(self, images: ImageSet) -> Splits:
        """Splits of a folder that gives none: normals are held out to validate and to test."""
        anomalous = images.anomalous
        mixed = _of_patients(images.normals, anomalous)
        normals = images.normals.select(~mixed)
        train, validation = self._hold_out(normals, 0)
        if len(anomalous) == 0:
            return Splits(self.contaminate(train), validation, anomalous, official=False)
        train, held = self._hold_out(train, 1, share_of=len(normals))
        chosen = self.contaminants(len(train), len(anomalous))
        train = train.select(self.chosen_normals(len(train)))
        added = anomalous.select(chosen)
        others = anomalous.select(np.setdiff1d(np.arange(len(anomalous)), chosen))
        # Healthy images of patients who also have anomalous ones are tested on, with these.
        test = join(join(held, images.normals.select(mixed)), others)
        test = test.select(~_of_patients(test, added))
        return Splits(join(train, added), validation, test, official=False)

    def _complete(self, parts: dict[str, ImageSet], size: int) -> Splits:
        """The given split; validation is taken from the training normals where it is not given."""
        warnings = []
        normals, anomalous = parts["train"].normals, parts["train"].anomalous
        if "validation" in parts:
            validation = parts["validation"]
        else:
            normals, validation = self._hold_out(normals, 0)
        if len(anomalous) and not self.contamination:
            warnings.append(f"{len(anomalous)} anomalous training images were left out.")
        test = parts.get("test", empty(size))
        if len(test) and not test.labels.any():
            warnings.append("No test image is in a class folder that is known to be anomalous.")
        train = self.contaminate(join(normals, anomalous))
        return Splits(train, validation, test, official=True, warnings=tuple(warnings))

    def _hold_out(
        self, normals: ImageSet, stream: int, share_of: int | None = None
    ) -> tuple[ImageSet, ImageSet]:
        """Those left and those held out; a patient, or copies of one image, stay together."""
        if len(normals) < 2:
            raise DataError(f"{self.root} has {len(normals)} normal images; at least 2 are needed.")
        groups = normals.patients or digests(normals.pixels)
        count = max(1, round(self.holdout * (share_of or len(normals))))
        held = draw_groups(groups, count, self.rng(0, stream))
        if not held.any():
            raise DataError(f"holdout = {self.holdout:g} of {self.root} is no one; raise it.")
        return normals.select(~held), normals.select(held)


def _columns(entries: list[Entry]) -> dict[str, tuple[str, ...]]:
    """What DICOM files say of themselves, and the other columns of the table of labels, '' where
    they say nothing; a column of the table takes the place of what files say."""
    said = [
        {name: value(entry.facts) for name, value in HEADERS.items()} if entry.facts else {}
        for entry in entries
    ]
    known = [mine | dict(entry.columns) for mine, entry in zip(said, entries, strict=True)]
    names = dict.fromkeys(name for one in known for name, cell in one.items() if cell)
    return {name: tuple(one.get(name, "") for one in known) for name in names}


def _no_image(root: Path, reasons: tuple[str, ...]) -> DataError:
    """That a folder holds no image, or why none of those it holds is used."""
    if not reasons:
        return DataError(f"There is no image (PNG, JPEG, TIFF, BMP or DICOM) in {root}.")
    more = f" And {len(reasons) - REASONS} more reasons." if len(reasons) > REASONS else ""
    return DataError(
        f"There is no image in {root} that the recipe asks for. {' '.join(reasons[:REASONS])}{more}"
    )


def _is(name: str, names: Iterable[str]) -> bool:
    """Whether a folder has one of the names, but for case and an ending such as _256."""
    plain = re.sub(r"_\d+$", "", name.lower())
    return plain in {known.lower() for known in names}


def _named(images: ImageSet, names: set[str]) -> np.ndarray:
    """A mask of the images with one of these names."""
    return np.array([name in names for name in images.names], dtype=bool)


def _of_patients(images: ImageSet, others: ImageSet) -> np.ndarray:
    """A mask of the images whose patient also has an image in `others`."""
    patients = set(others.patients or ())
    if not patients:
        return np.zeros(len(images), dtype=bool)
    return np.array([patient in patients for patient in images.patients or ()], dtype=bool)
