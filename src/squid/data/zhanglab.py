"""ZhangLab (Kermany et al., Cell 2018): chest X-rays of children, normal or with pneumonia.

Either the four npz files at 128 px or the published folders `train|val|test/NORMAL|PNEUMONIA`. The
official test set is kept; Kaggle's small `val` joins the training part, from which the paper holds
out 100 normal and 100 pneumonia images for validation. The paper's list is not public, so ours is
drawn with a fixed seed, by patient.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from squid.data.arrays import read_arrays, to_gray
from squid.data.base import FileDataConfig, Progress
from squid.data.files import (
    Listing,
    Unreadable,
    image_files,
    read_splits,
    subfolders,
)
from squid.data.image import resize_all
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits, check, draw_groups
from squid.errors import DataError

CLASSES = {"normal": NORMAL, "pneumonia": ANOMALOUS}
LARGEST_SHARE = 0.2
"""Of the normals that validation may take where there are few."""

Part = TypeVar("Part", ImageSet, Listing)


class ZhangLab(FileDataConfig):
    """ZhangLab chest X-rays (paper, sec. 4.2)."""

    folders = ("zhanglab", "zhanglab128")

    name: Literal["zhanglab"] = "zhanglab"
    root: Path | None = None
    """The folder of the npz files, or the one that holds train and test (or chest_xray)."""
    validation_normals: int = 100
    validation_anomalous: int = 100
    unreadable: Unreadable = "refuse"

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        root = self.find_folder()
        if (root / "train_normal.npz").is_file():
            return self._load_npz(root, size)
        return self._load_folders(root, size, progress)

    def _load_npz(self, root: Path, size: int) -> Splits:
        given, test = _read_npz(root, "train"), _read_npz(root, "test")
        plan = self._plan(given, test)
        train, validation, test = (
            _resized(images, size)
            for images in (given.select(plan.train), given.select(plan.validation), test)
        )
        return check(Splits(train, validation, test, official=True, warnings=plan.warnings))

    def _load_folders(self, root: Path, size: int, progress: Progress | None) -> Splits:
        given, test = _list_folders(root)
        plan = self._plan(given, test)
        return read_splits(
            given.select(plan.train),
            given.select(plan.validation),
            test,
            size=size,
            official=True,
            unreadable=self.unreadable,
            progress=progress,
            warnings=plan.warnings,
        )

    def _plan(self, given: Part, test: Part) -> "_Plan":
        """Which images of the official training part train and which validate."""
        assert given.patients is not None
        assert test.patients is not None
        rng, patients, tested = self.rng(0), np.array(given.patients), set(test.patients)
        in_test = np.array([patient in tested for patient in given.patients], dtype=bool)
        normals = np.flatnonzero(given.labels == NORMAL)
        free = np.flatnonzero((given.labels == ANOMALOUS) & ~in_test)
        count = min(self.validation_normals, int(LARGEST_SHARE * len(normals)))
        held = draw_groups(patients[normals].tolist(), count, rng)
        sick = draw_groups(patients[free].tolist(), self.validation_anomalous, rng)
        added = free[~sick][self.contaminants(int((~held).sum()), int((~sick).sum()))]
        return _Plan(
            train=np.concatenate([normals[~held], added]),
            validation=np.concatenate([normals[held], free[sick]]),
            warnings=self._warnings(int(held.sum()), int(sick.sum()), in_test, patients),
        )

    def _warnings(
        self, held: int, sick: int, in_test: np.ndarray, patients: np.ndarray
    ) -> tuple[str, ...]:
        found = []
        if (held, sick) != (self.validation_normals, self.validation_anomalous):
            found.append(
                f"Validation holds {held} normal and {sick} pneumonia images instead of "
                f"{self.validation_normals} and {self.validation_anomalous}: there are too few."
            )
        if in_test.any():
            found.append(
                f"{len(set(patients[in_test]))} patients are in the official train and test; their "
                f"{in_test.sum()} training images are used only where they are normal."
            )
        return tuple(found)


@dataclass(frozen=True)
class _Plan:
    train: np.ndarray
    validation: np.ndarray
    warnings: tuple[str, ...]


def patient_of(name: str) -> str:
    """personNNN_... for pneumonia, IM-NNNN or NORMAL2-IM-NNNN for normal; else the name itself."""
    found = re.match(r"(person\d+|(?:NORMAL2-)?IM-\d+)", name, flags=re.IGNORECASE)
    return found.group(1) if found else name


def _read_npz(root: Path, part: str) -> ImageSet:
    """Both classes of the official train or test part, at the size of the file."""
    images, labels, names = [], [], []
    for kind, label in CLASSES.items():
        arrays = read_arrays(root / f"{part}_{kind}.npz", "images", "names")
        images.append(to_gray(arrays["images"]))
        names += arrays["names"].tolist()
        labels += [label] * len(images[-1])
    stacked = np.concatenate(images)
    return ImageSet(
        pixels=resize_all(stacked, stacked.shape[-1]),
        labels=np.array(labels, dtype=np.int64),
        names=tuple(names),
        patients=tuple(patient_of(name) for name in names),
        findings=tuple(_finding(label) for label in labels),
    )


def _list_folders(root: Path) -> tuple[Listing, Listing]:
    folders = subfolders(root)
    while "chest_xray" in folders:
        folders = subfolders(folders["chest_xray"])
    if "train" not in folders or "test" not in folders:
        raise DataError(
            f"{root} holds neither the npz files of ZhangLab nor its folders train and test."
        )
    given = [folders[name] for name in ("train", "val") if name in folders]
    return _list_classes(given), _list_classes([folders["test"]])


def _list_classes(parts: list[Path]) -> Listing:
    found = [
        (path, label)
        for kind, label in CLASSES.items()
        for part in parts
        for path in image_files(subfolders(part).get(kind, part / kind))
    ]
    return Listing(
        paths=tuple(path for path, _ in found),
        names=tuple(path.name for path, _ in found),
        labels=np.array([label for _, label in found], dtype=np.int64),
        patients=tuple(patient_of(path.name) for path, _ in found),
        findings=tuple(_finding(label) for _, label in found),
    )


def _finding(label: int) -> str:
    return "" if label == NORMAL else "Pneumonia"


def _resized(images: ImageSet, size: int) -> ImageSet:
    return replace(images, pixels=resize_all(images.pixels[:, 0].numpy(), size))
