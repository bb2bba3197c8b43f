"""RSNA Pneumonia Detection Challenge 2018 (Shih et al., Radiology: AI 2019): radiologists' boxes.

- What: 26,684 frontal chest X-rays of NIH ChestX-ray14, read as Normal, Lung Opacity (with boxes)
  or No Lung Opacity / Not Normal.
- Where: https://www.rsna.org/education/ai-resources-and-training/ai-image-challenge/
  rsna-pneumonia-detection-challenge-2018, or Kaggle's rsna-pneumonia-detection-challenge.
- Licence: any use with attribution; NIH's terms hold as well (see `squid.data.nih`).
- Layout: `stage_2_train_images/<patientId>.png` or `.dcm`, `stage_2_train_labels.csv`,
  `stage_2_detailed_class_info.csv`, and `rsna_nih.csv` with the patient, view, sex and age of each
  image (`python -m squid.data.prepare rsna` makes it from RSNA's mapping and NIH's table).

`patientId` names an image, so images are split by NIH's number of the patient. Opacities are mostly
AP (bedside) images and healthy ones mostly PA: the view alone tells the classes apart to a large
part, so results are to be reported within one view.
"""

from collections import defaultdict
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from squid.data.base import ORIGINAL_SIDE, PatientSplitConfig, Progress
from squid.data.files import Unreadable, read_splits
from squid.data.image_set import ANOMALOUS, NORMAL, Box, FileSet, Splits
from squid.data.tables import read_table
from squid.data.walk import find_images
from squid.errors import DataError

HEALTHY, OPACITY, OTHER = "Normal", "Lung Opacity", "No Lung Opacity / Not Normal"
UNKNOWN_PATIENT = "-1"
IMAGES = "stage_2_train_images"
"""The folder of the images."""
TESTED_WITHOUT_HEALTHY = 0.75
"""Share of the patients without a healthy image who are tested on; the others validate."""


class Rsna(PatientSplitConfig):
    """RSNA: trains on healthy images of one group of patients; two groups are held out."""

    folders = ("rsna", "rsna128")

    name: Literal["rsna"] = "rsna"
    root: Path | None = None
    """The folder of stage_2_train_images and of the tables."""
    view: Literal["PA", "AP", "both"] = "both"
    """Images of which view are taken."""
    minimum_age: int = Field(18, ge=0)
    """Age in years from which on patients are taken."""
    not_normal: bool = False
    """Whether the third class, No Lung Opacity / Not Normal, is taken, as a finding of its own."""
    validation_share: float = Field(0.08, gt=0.0, lt=1.0)
    """Share of the patients whose images validate."""
    test_share: float = Field(0.25, gt=0.0, lt=1.0)
    """Share of the patients whose images are tested on."""
    unreadable: Unreadable = "refuse"
    """What to do with a file that is not a readable image."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        files, warnings = self._files(self.find_folder())
        group = self._groups(files)
        return read_splits(
            self.contaminate(files.select(group == "train")),
            files.select(group == "validation"),
            files.select(group == "test"),
            size=size,
            official=False,
            reading=self.reading,
            unreadable=self.unreadable,
            progress=progress,
            warnings=warnings,
        )

    def _files(self, root: Path) -> tuple[FileSet, tuple[str, ...]]:
        """The images that the settings ask for, and warnings if some had to be left out."""
        paths = {path.stem: path for path in find_images(root / IMAGES).images}
        classes = _read_classes(root)
        wanted = {HEALTHY, OPACITY, OTHER} if self.not_normal else {HEALTHY, OPACITY}
        # The others have another class, view or age than is asked for.
        rows = [
            row
            for row in _read_patients(root)
            if classes.get(row["patientId"]) in wanted
            and self.view in (row["view"], "both")
            and int(row["age"]) >= self.minimum_age
        ]
        there = [row for row in rows if row["patientId"] in paths]
        # Without a patient an image could stand on both sides of the split.
        kept = [row for row in there if row["nih_patient"] != UNKNOWN_PATIENT]
        if not kept:
            raise DataError(f"{root} holds no image for view = '{self.view}'; check the dataset.")
        ids = tuple(row["patientId"] for row in kept)
        findings = tuple("" if classes[i] == HEALTHY else classes[i] for i in ids)
        boxes = _read_boxes(root)
        files = FileSet(
            paths=tuple(paths[i] for i in ids),
            labels=np.array([ANOMALOUS if found else NORMAL for found in findings], dtype=np.int64),
            names=ids,
            patients=tuple(row["nih_patient"] for row in kept),
            findings=findings,
            boxes=tuple(tuple(boxes.get(i, ())) for i in ids),
            columns={key: tuple(row[key] for row in kept) for key in ("view", "sex", "age")},
        )
        left_out = {
            f"their files are not in {root / IMAGES}": len(rows) - len(there),
            "their patients are not known": len(there) - len(kept),
        }
        return files, tuple(
            f"{count} images were left out: {why}." for why, count in left_out.items() if count
        )

    def _groups(self, files: FileSet) -> np.ndarray:
        """(n,) the split of each image, a function of its patient's number alone: a patient is in
        the same split whichever view, age or part of the archive is read, and the test set stays
        the same when `validation_share` changes.

        Training takes healthy images only. So patients without any are tested on but for a quarter
        of them, which validates.
        """
        groups = []
        for patient in files.patients or ():
            trains = patient in self._healthy_patients
            tested = self.test_share if trains else TESTED_WITHOUT_HEALTHY
            held = self.test_share + self.validation_share if trains else 1.0
            place = _place(self.seed, patient)
            groups.append("test" if place < tested else "validation" if place < held else "train")
        return np.array(groups)

    @cached_property
    def _healthy_patients(self) -> frozenset[str]:
        """Patients with a healthy image of any view and age."""
        root = self.find_folder()
        classes = _read_classes(root)
        return frozenset(
            row["nih_patient"]
            for row in _read_patients(root)
            if classes.get(row["patientId"]) == HEALTHY
        )


def _place(seed: int, patient: str) -> float:
    """A number in [0, 1) that looks random but depends on nothing else."""
    digest = blake2b(f"{seed}/{patient}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _read_classes(root: Path) -> dict[str, str]:
    """The class of each image; the published table repeats an image for each of its boxes."""
    rows = read_table(root / "stage_2_detailed_class_info.csv", "patientId", "class")
    return {row["patientId"]: row["class"] for row in rows}


def _read_boxes(root: Path) -> dict[str, list[Box]]:
    """The boxes of each image that has some."""
    boxes: dict[str, list[Box]] = defaultdict(list)
    sides = ("x", "y", "width", "height")
    for row in read_table(root / "stage_2_train_labels.csv", "patientId", *sides, numbers=sides):
        if row["x"]:
            x, y, width, height = (float(row[side]) / ORIGINAL_SIDE for side in sides)
            boxes[row["patientId"]].append(Box(OPACITY, x, y, width, height))
    return boxes


def _read_patients(root: Path) -> list[dict[str, str]]:
    """Patient, view, sex and age of each image."""
    path = root / "rsna_nih.csv"
    if not path.is_file():
        raise DataError(
            f"There is no table {path}; make it with: python -m squid.data.prepare rsna"
        )
    return read_table(path, "patientId", "nih_patient", "view", "sex", "age", integers=("age",))
