"""ZhangLab (Kermany et al., Cell 2018): chest X-rays of children, normal or with pneumonia.

- What: 5,856 images; the official training part has 1,349 normal and 3,883 pneumonia images, the
  test part 234 and 390.
- Where: https://data.mendeley.com/datasets/rscbjbr9sj/2 (ChestXRay2017.zip, 1.2 GB).
- Licence: CC BY 4.0; doi:10.17632/rscbjbr9sj.
- Layout: `train|val|test/NORMAL|PNEUMONIA/*.jpeg`, or four npz files `train_normal.npz` ...
  `test_pneumonia.npz` with `images` (n, h, w) and `names`.

The official test set is kept. Kaggle's small `val` joins the training part, from which the paper
holds out 100 normal and 100 pneumonia images for validation. The paper's list is not public, so
ours is random with a fixed seed, by patient.
"""

import re
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import FileDataConfig, Progress
from squid.data.files import Unreadable, read_splits, subfolders
from squid.data.image import resize_all
from squid.data.image_set import (
    ANOMALOUS,
    NORMAL,
    FileSet,
    ImageSet,
    Labelled,
    Splits,
    draw_groups,
    join,
)
from squid.data.tables import read_arrays, to_gray
from squid.data.walk import find_images
from squid.errors import DataError

CLASSES = {"normal": NORMAL, "pneumonia": ANOMALOUS}
LARGEST_SHARE = 0.2
"""The most that validation takes of few normals."""


class ZhangLab(FileDataConfig):
    """ZhangLab chest X-rays (paper, sec. 4.2)."""

    folders = ("zhanglab", "zhanglab128")

    name: Literal["zhanglab"] = "zhanglab"
    root: Path | None = None
    """The folder of the npz files, or the one that holds train and test (or chest_xray)."""
    validation_normals: int = 100
    """Normal images held out for validation."""
    validation_anomalous: int = 100
    """Pneumonia images held out for validation."""
    unreadable: Unreadable = "refuse"
    """What to do with a file that is not a readable image."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        root = self.find_folder()
        if (root / "train_normal.npz").is_file():
            return self._split(_read_npz(root, "train", size), _read_npz(root, "test", size), size)
        given, test = _list_folders(root)
        return self._split(given, test, size, progress)

    def _split(
        self, given: Labelled, test: Labelled, size: int, progress: Progress | None = None
    ) -> Splits:
        """The official test part, and training and validation images of the official training."""
        assert given.patients is not None
        assert test.patients is not None
        rng, patients, tested = self.rng(0), np.array(given.patients), set(test.patients)
        in_test = np.array([patient in tested for patient in given.patients], dtype=bool)
        normals = np.flatnonzero(given.labels == NORMAL)
        # Pneumonia images of test patients are used for nothing.
        free = np.flatnonzero((given.labels == ANOMALOUS) & ~in_test)
        count = min(self.validation_normals, int(LARGEST_SHARE * len(normals)))
        held = draw_groups(patients[normals].tolist(), count, rng)
        sick = draw_groups(patients[free].tolist(), self.validation_anomalous, rng)
        return read_splits(
            self.contaminate(given.select(np.concatenate([normals[~held], free[~sick]]))),
            given.select(np.concatenate([normals[held], free[sick]])),
            test,
            size=size,
            official=True,
            reading=self.reading,
            unreadable=self.unreadable,
            progress=progress,
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


def patient_of(name: str) -> str:
    """personNNN_... for pneumonia, IM-NNNN or NORMAL2-IM-NNNN for normal; else the name itself."""
    found = re.match(r"(person\d+|(?:NORMAL2-)?IM-\d+)", name, flags=re.IGNORECASE)
    return found.group(1) if found else name


def _read_npz(root: Path, part: str, size: int) -> ImageSet:
    """Both classes of the official train or test part."""
    classes = []
    for kind, label in CLASSES.items():
        arrays = read_arrays(root / f"{part}_{kind}.npz", "images", "names")
        names = arrays["names"].tolist()
        classes.append(
            ImageSet(
                pixels=resize_all(to_gray(arrays["images"]), size),
                labels=np.full(len(names), label, dtype=np.int64),
                names=tuple(names),
                patients=tuple(patient_of(name) for name in names),
                findings=(_finding(label),) * len(names),
            )
        )
    return join(*classes)


def _list_folders(root: Path) -> tuple[FileSet, FileSet]:
    """The official train and test part."""
    folders = subfolders(root)
    while "chest_xray" in folders:
        folders = subfolders(folders["chest_xray"])
    if "train" not in folders or "test" not in folders:
        raise DataError(
            f"{root} holds neither the npz files of ZhangLab nor its folders train and test."
        )
    given = [folders[name] for name in ("train", "val") if name in folders]
    return _list_classes(given), _list_classes([folders["test"]])


def _list_classes(parts: list[Path]) -> FileSet:
    found = [
        (path, label)
        for kind, label in CLASSES.items()
        for part in parts
        for path in find_images(subfolders(part).get(kind, part / kind)).images
    ]
    return FileSet(
        paths=tuple(path for path, _ in found),
        labels=np.array([label for _, label in found], dtype=np.int64),
        names=tuple(path.name for path, _ in found),
        patients=tuple(patient_of(path.name) for path, _ in found),
        findings=tuple(_finding(label) for _, label in found),
    )


def _finding(label: int) -> str:
    return "" if label == NORMAL else "Pneumonia"
