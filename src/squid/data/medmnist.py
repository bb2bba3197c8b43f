"""A MedMNIST npz (Yang et al., Scientific Data 2023), such as PneumoniaMNIST, at any size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import DataConfig, Progress
from squid.data.image import resize_all
from squid.data.splits import ANOMALOUS, NORMAL, ImageSet, Splits, check, digests
from squid.errors import DataError

LUMA = np.array([0.299, 0.587, 0.114])
"""Gray of red, green and blue (ITU-R 601), as Pillow weighs them."""


class MedMnist(DataConfig):
    """A MedMNIST file with its own splits; every label but `normal_label` is anomalous.

    Of a file with several labels an image, those with none are normal.
    """

    name: Literal["medmnist"] = "medmnist"
    root: Path
    """The npz file."""
    normal_label: int = 0

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        if not self.root.is_file():
            raise DataError(f"There is no file {self.root}; give the path of a MedMNIST npz.")
        with np.load(self.root) as arrays:
            given, validation, test = (
                self._part(arrays, part, size) for part in ("train", "val", "test")
            )
        given, warnings = _without_copies(given, validation, test)
        train = self.contaminate(given.normals, given.anomalous)
        return check(Splits(train, validation, test, official=True, warnings=warnings))

    def _part(self, arrays: Mapping[str, np.ndarray], part: str, size: int) -> ImageSet:
        if f"{part}_images" not in arrays or f"{part}_labels" not in arrays:
            raise DataError(f"{self.root} has no {part}_images and {part}_labels as MedMNIST has.")
        kinds = np.asarray(arrays[f"{part}_labels"]).reshape(len(arrays[f"{part}_labels"]), -1)
        single = kinds.shape[1] == 1
        normal = np.asarray(kinds[:, 0] == self.normal_label if single else ~kinds.any(axis=1))
        labels = np.where(normal, NORMAL, ANOMALOUS).astype(np.int64)
        return ImageSet(
            pixels=resize_all(to_gray(arrays[f"{part}_images"]), size),
            labels=labels,
            names=tuple(f"{part}-{i:06d}" for i in range(len(labels))),
            findings=tuple(
                "" if ok else _finding(kind) for ok, kind in zip(normal, kinds, strict=True)
            ),
        )


def to_gray(images: np.ndarray) -> np.ndarray:
    """(n, h, w) or (n, h, w, 3) uint8 -> (n, h, w) uint8."""
    if images.ndim == 3:
        return images
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise DataError(f"Images of shape {images.shape} are neither gray nor colour.")
    if images.shape[-1] == 1:
        return images[..., 0]
    gray: np.ndarray = np.round(images @ LUMA).astype(np.uint8)
    return gray


def _finding(kinds: np.ndarray) -> str:
    """The label, or the places of those that are set."""
    return "|".join(str(k) for k in (kinds if len(kinds) == 1 else np.flatnonzero(kinds)))


def _without_copies(
    given: ImageSet, validation: ImageSet, test: ImageSet
) -> tuple[ImageSet, tuple[str, ...]]:
    """The published training part holds copies of other parts' images: they are not trained on."""
    held = set(digests(validation)) | set(digests(test))
    unique = np.array([digest not in held for digest in digests(given)], dtype=bool)
    if unique.all():
        return given, ()
    left_out = f"{(~unique).sum()} training images are copies of held-out ones and were left out."
    return given.select(unique), (left_out,)
