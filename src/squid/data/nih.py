"""NIH ChestX-ray14 (Wang et al., CVPR 2017): the PA images of `nih_pa.npz`, split by patient."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from squid.data.base import FileDataConfig, Progress
from squid.data.files import read_arrays, to_gray
from squid.data.image import resize_all
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits, check
from squid.errors import DataError

NO_FINDING = "No Finding"


class Nih(FileDataConfig):
    """NIH PA: trains on images without finding of one group of patients; two are held out."""

    folders = ("nih", "nih128")

    name: Literal["nih"] = "nih"
    root: Path | None = None
    """nih_pa.npz or its folder."""
    validation_share: float = Field(0.1, gt=0.0, lt=1.0)
    """Of the patients."""
    test_share: float = Field(0.3, gt=0.0, lt=1.0)
    """Of the patients."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        images = _read(self.find_root(), size)
        group = self._groups(images)
        given = images.select(group == "train")
        train = self.contaminate(given)
        validation, test = (images.select(group == name) for name in ("validation", "test"))
        return check(Splits(train, validation, test, official=False))

    def _groups(self, images: ImageSet) -> np.ndarray:
        """(n,) the split of each image, drawn for its patient."""
        if self.validation_share + self.test_share >= 1.0:
            raise DataError("validation_share and test_share leave no patient to train on.")
        patients, of_image = np.unique(np.array(images.patients), return_inverse=True)
        held = np.round(np.cumsum([self.validation_share, self.test_share]) * len(patients))
        rank = self.rng(0).permutation(len(patients))
        names = np.array(["validation", "test", "train"])
        groups: np.ndarray = names[np.searchsorted(held, rank, side="right")][of_image]
        return groups


def _read(root: Path, size: int) -> ImageSet:
    path = root / "nih_pa.npz" if root.is_dir() else root
    arrays = read_arrays(path, "images", "abnormal", "names", "patient", "labels")
    return ImageSet(
        pixels=resize_all(to_gray(arrays["images"]), size),
        labels=np.where(arrays["abnormal"], ANOMALOUS, NORMAL).astype(np.int64),
        names=tuple(arrays["names"].tolist()),
        patients=tuple(str(patient) for patient in arrays["patient"]),
        findings=tuple("" if label == NO_FINDING else str(label) for label in arrays["labels"]),
    )
