"""NIH ChestX-ray14 (Wang et al., CVPR 2017): the PA images of adults, split by patient.

- What: 112,120 frontal chest X-rays of 30,805 patients of the NIH Clinical Center; 14 findings,
  text-mined from reports and therefore noisy.
- Where: https://nihcc.app.box.com/v/ChestXray-NIHCC (twelve archives, about 45 GB).
- Licence: free use; link that page, cite the paper and name the NIH Clinical Center as provider.
- Layout: `Data_Entry_2017_v2020.csv` and `images/*.png` or `images_001/` ... `images_012/`, as many
  as are there; or `nih_pa.npz`, which `python -m squid.data.prepare nih` packs from them.

Optional tables `rsna_on_nih.csv[.gz]` (nih_name, rsna_class) and `boxes_on_nih.csv[.gz]` (nih_name,
label, x, y, w, h in pixels of 1024), in the dataset's folder or in `nih_tables` next to it, add the
classes of the RSNA challenge and boxes, joined by file name.
"""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import ORIGINAL_SIDE, PatientSplitConfig, Progress
from squid.data.files import Unreadable, read_splits
from squid.data.image import resize_all
from squid.data.image_set import (
    ANOMALOUS,
    NORMAL,
    Box,
    FileSet,
    ImageSet,
    Labelled,
    Splits,
    split_by_patient,
)
from squid.data.tables import read_arrays, read_table, to_gray
from squid.data.walk import find_images
from squid.errors import DataError

PACKED = "nih_pa.npz"
TABLES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
NO_FINDING = "No Finding"
ADULT = 18
RSNA_CLASS = "rsna_class"
"""The column of RSNA's classes: a second reading of the image, so no covariate."""


class Nih(PatientSplitConfig):
    """NIH PA: trains on images without finding of one group of patients; two are held out."""

    folders = ("nih", "nih128")

    name: Literal["nih"] = "nih"
    root: Path | None = None
    """The folder of nih_pa.npz or of the published files, or an npz file."""
    unreadable: Unreadable = "refuse"
    """What to do with a file that is not a readable image."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        root = self.find_root()
        packed = root / PACKED if root.is_dir() else root
        if packed.is_file():
            return self._split(_read_npz(packed, size), packed.parent, size)
        return self._split(list_published(root), root, size, progress)

    def _split(
        self, images: Labelled, folder: Path, size: int, progress: Progress | None = None
    ) -> Splits:
        images = _with_boxes(_with_rsna_class(images, folder), folder)
        assert images.patients is not None
        group = split_by_patient(
            images.patients, self.validation_share, self.test_share, self.rng(0)
        )
        return read_splits(
            self.contaminate(images.select(group == "train")),
            images.select(group == "validation"),
            images.select(group == "test"),
            size=size,
            official=False,
            reading=self.reading,
            unreadable=self.unreadable,
            progress=progress,
        )


def list_published(root: Path) -> FileSet:
    """The PA images of adults among the published files, by name."""
    paths = {path.name: path for path in find_images(root).images}
    rows = [row for row in read_metadata(root) if row["Image Index"] in paths]
    kept = [row for row in rows if row["View Position"] == "PA" and age_of(row) >= ADULT]
    if not kept:
        raise DataError(f"{root} holds neither {PACKED} nor a PA image of an adult of NIH's table.")
    # By name, in whichever order an edition of the table has them.
    kept.sort(key=lambda row: row["Image Index"])
    findings = tuple(_finding(row["Finding Labels"]) for row in kept)
    return FileSet(
        paths=tuple(paths[row["Image Index"]] for row in kept),
        labels=np.array([ANOMALOUS if found else NORMAL for found in findings], dtype=np.int64),
        names=tuple(row["Image Index"] for row in kept),
        patients=tuple(str(int(row["Patient ID"])) for row in kept),
        findings=findings,
        columns={
            "view": ("PA",) * len(kept),
            "sex": tuple(row["Patient Gender"] for row in kept),
            "age": tuple(str(age_of(row)) for row in kept),
        },
    )


def read_metadata(folder: Path) -> list[dict[str, str]]:
    """The rows of NIH's table of all images."""
    path = next((folder / name for name in TABLES if (folder / name).is_file()), folder / TABLES[0])
    return read_table(
        path, "Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender",
        "View Position", integers=("Patient ID",),
    )  # fmt: skip


def age_of(row: dict[str, str]) -> int:
    """A patient's age in years; the first edition of the table writes 058Y, and 011M for months."""
    found = re.fullmatch(r"(\d+)([YMD]?)", row["Patient Age"])
    return int(found.group(1)) if found and found.group(2) in ("", "Y") else 0


def _read_npz(path: Path, size: int) -> ImageSet:
    arrays = read_arrays(path, "images", "abnormal", "names", "patient", "labels")
    return ImageSet(
        pixels=resize_all(to_gray(arrays["images"]), size),
        labels=np.where(arrays["abnormal"], ANOMALOUS, NORMAL).astype(np.int64),
        names=tuple(arrays["names"].tolist()),
        patients=tuple(str(patient) for patient in arrays["patient"]),
        findings=tuple(_finding(str(label)) for label in arrays["labels"]),
        columns={
            name: tuple(map(str, arrays[name])) for name in ("view", "sex", "age") if name in arrays
        },
    )


def _finding(label: str) -> str:
    return "" if label == NO_FINDING else label


def _with_rsna_class(images: Labelled, folder: Path) -> Labelled:
    """The images with a column `RSNA_CLASS`, '' where RSNA's radiologists did not read them."""
    path = _find_table(folder, "rsna_on_nih.csv")
    if path is None:
        return images
    classes = {
        row["nih_name"]: row["rsna_class"] for row in read_table(path, "nih_name", "rsna_class")
    }
    column = tuple(classes.get(name, "") for name in images.names)
    return replace(images, columns={**images.columns, RSNA_CLASS: column})


def _with_boxes(images: Labelled, folder: Path) -> Labelled:
    """The images with the boxes that radiologists marked in some of them."""
    path = _find_table(folder, "boxes_on_nih.csv")
    if path is None:
        return images
    boxes: dict[str, list[Box]] = defaultdict(list)
    sides = ("x", "y", "w", "h")
    for row in read_table(path, "nih_name", "label", *sides, numbers=sides):
        x, y, width, height = (float(row[side] or 0.0) / ORIGINAL_SIDE for side in sides)
        boxes[row["nih_name"]].append(Box(row["label"], x, y, width, height))
    return replace(images, boxes=tuple(tuple(boxes.get(name, ())) for name in images.names))


def _find_table(folder: Path, name: str) -> Path | None:
    """An optional table, packed with gzip or not."""
    folders = (folder, folder.parent / "nih_tables")
    candidates = (place / file for place in folders for file in (name, f"{name}.gz"))
    return next((path for path in candidates if path.is_file()), None)
