"""Any folder of images.

Recognised, in this order: `data.json` beside `images/` (split -> class -> names); split folders
`train`, `valid|val`, `test`, each with class folders or flat; class folders (`normal`, `abnormal`;
`good`, `Ungood`; `NORMAL`, `PNEUMONIA`; `normal_256` ...); and a flat folder, all normal. Beside a
folder of normal images every other class folder holds anomalies, named by the folder.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from squid.data.base import FileDataConfig, Progress
from squid.data.files import Listing, Unreadable, image_files, subfolders
from squid.data.image_set import ImageSet, Splits, check, digests, draw_groups, empty, join
from squid.errors import DataError

SPLITS = {"train": "train", "valid": "validation", "val": "validation", "test": "test"}
NORMAL_NAMES = ("normal", "normals", "good", "healthy")
ANOMALOUS_NAMES = ("abnormal", "anomalous", "anomaly", "bad", "ungood", "pneumonia")

Entry = tuple[Path, str]
"""A file and its finding, '' for normal."""


class Folder(FileDataConfig):
    """Images in folders; where no validation or test images are given, normals are held out."""

    name: Literal["folder"] = "folder"
    root: Path
    holdout: float = Field(0.2, gt=0.0, le=0.5)
    """Share of the normals held out for each split that has to be made."""
    normal_names: tuple[str, ...] = NORMAL_NAMES
    """Class folders of normal images (in any case, with or without an ending such as _256)."""
    anomalous_names: tuple[str, ...] = ANOMALOUS_NAMES
    """Class folders that are anomalous even where no folder of normal images is beside them."""
    patient: str | None = None
    """Regular expression whose first group, found in a file's path, is its patient."""
    unreadable: Unreadable = "refuse"

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        root = self.find_folder()
        given = self._given(root)
        entries = [entry for found in given.values() for entry in found]
        if not entries:
            raise DataError(f"There is no image (PNG, JPEG, TIFF or BMP) in {root}.")
        images, warnings = self._listing(root, entries).read(size, self.unreadable, progress)
        if set(given) == {"all"}:
            return check(replace(self._divide(images), warnings=warnings))
        parts = {
            split: images.select(_among(images, {_name(root, path) for path, _ in found}))
            for split, found in given.items()
        }
        splits = self._complete(parts, size)
        return check(replace(splits, warnings=warnings + splits.warnings))

    def _given(self, root: Path) -> dict[str, list[Entry]]:
        """The files of each split, or all of them under `all`."""
        if (root / "data.json").is_file():
            return self._from_json(root)
        folders = subfolders(root)
        if "train" not in folders:
            return {"all": self._classes(root)}
        given: dict[str, list[Entry]] = {}
        for name, split in SPLITS.items():
            if name in folders:
                given.setdefault(split, []).extend(self._classes(folders[name]))
        return given

    def _classes(self, folder: Path) -> list[Entry]:
        """The images below one folder; without known class folders all are normal."""
        kinds = subfolders(folder)
        has_normal = any(self._is(name, self.normal_names) for name in kinds)
        entries: list[Entry] = []
        for path in image_files(folder):
            kind = path.relative_to(folder).parts[0]
            inside = kind.lower() in kinds and path.parent != folder
            entries.append((path, self._finding(kind, has_normal) if inside else ""))
        return entries

    def _finding(self, kind: str, has_normal: bool) -> str:
        if self._is(kind, self.normal_names):
            return ""
        return kind if has_normal or self._is(kind, self.anomalous_names) else ""

    def _is(self, name: str, names: Iterable[str]) -> bool:
        plain = re.sub(r"_\d+$", "", name.lower())
        return plain in {known.lower() for known in names}

    def _from_json(self, root: Path) -> dict[str, list[Entry]]:
        try:
            table: Any = json.loads((root / "data.json").read_text(encoding="utf-8"))
            return {
                "train": self._named(root, table["train"]),
                "test": self._named(root, table["test"]),
            }
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise DataError(
                f"{root / 'data.json'} is not train and test -> class -> file names ({error})."
            ) from None

    def _named(self, root: Path, classes: dict[str, Any]) -> list[Entry]:
        """Class '0' is normal here; what is not labelled lies in a table of its own."""
        return [
            (root / "images" / name, "" if kind == "0" else self._finding(kind, has_normal=True))
            for kind, names in classes.items()
            if isinstance(names, list)
            for name in names
        ]

    def _listing(self, root: Path, entries: list[Entry]) -> Listing:
        names = tuple(_name(root, path) for path, _ in entries)
        return Listing(
            paths=tuple(path for path, _ in entries),
            names=names,
            labels=np.array([int(bool(finding)) for _, finding in entries], dtype=np.int64),
            patients=None if self.patient is None else tuple(self._patient(n) for n in names),
            findings=tuple(finding for _, finding in entries),
        )

    def _patient(self, name: str) -> str:
        found = re.search(str(self.patient), name)
        if found is None or not found.groups():
            raise DataError(f"patient = '{self.patient}' finds no group in '{name}'; correct it.")
        return found.group(1)

    def _divide(self, images: ImageSet) -> Splits:
        """No split is given: hold out normals to validate and, beside anomalies, to test."""
        anomalous = images.anomalous
        mixed = _of_patients(images.normals, anomalous)
        normals = images.normals.select(~mixed)
        train, validation = self._hold_out(normals, 0)
        if len(anomalous) == 0:
            return Splits(self.contaminate(train, None), validation, anomalous, official=False)
        train, held = self._hold_out(train, 1, share_of=len(normals))
        chosen = self.contaminants(len(train), len(anomalous))
        added = anomalous.select(chosen)
        others = anomalous.select(np.setdiff1d(np.arange(len(anomalous)), chosen))
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
        train = self.contaminate(normals, anomalous)
        return Splits(train, validation, test, official=True, warnings=tuple(warnings))

    def _hold_out(
        self, normals: ImageSet, stream: int, share_of: int | None = None
    ) -> tuple[ImageSet, ImageSet]:
        """Those left and those held out; a patient, or copies of one image, stay together."""
        if len(normals) < 2:
            raise DataError(f"{self.root} has {len(normals)} normal images; at least 2 are needed.")
        groups = normals.patients or digests(normals)
        count = max(1, round(self.holdout * (share_of or len(normals))))
        held = draw_groups(groups, count, self.rng(0, stream))
        if not held.any():
            raise DataError(f"holdout = {self.holdout:g} of {self.root} is no one; raise it.")
        return normals.select(~held), normals.select(held)


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _among(images: ImageSet, names: set[str]) -> np.ndarray:
    return np.array([name in names for name in images.names], dtype=bool)


def _of_patients(images: ImageSet, others: ImageSet) -> np.ndarray:
    """Which images are of a patient that `others` has, too."""
    patients = set(others.patients or ())
    if not patients:
        return np.zeros(len(images), dtype=bool)
    return np.array([patient in patients for patient in images.patients or ()], dtype=bool)
