"""A MedMNIST file (Yang et al., Scientific Data 2023), such as PneumoniaMNIST, at any size.

Each is one npz file of https://medmnist.com, most of them CC BY 4.0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import FileDataConfig, Progress
from squid.data.image import resize_all
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits, check, digests
from squid.data.tables import read_arrays, to_gray


class MedMnist(FileDataConfig):
    """A MedMNIST file with its own splits; every label but `normal_label` is anomalous.

    Where an image can have several labels, those without any are normal.
    """

    name: Literal["medmnist"] = "medmnist"
    root: Path
    """The npz file. A relative path is taken from the working directory, then from the data
    folder."""
    normal_label: int = 0

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        parts = ("train", "val", "test")
        needed = [f"{part}_{what}" for part in parts for what in ("images", "labels")]
        arrays = read_arrays(self.find_root(), *needed)
        given, validation, test = (self._part(arrays, part, size) for part in parts)
        given, warnings = _without_copies(given, validation, test)
        train = self.contaminate(given)
        return check(Splits(train, validation, test, official=True, warnings=warnings))

    def _part(self, arrays: Mapping[str, np.ndarray], part: str, size: int) -> ImageSet:
        kinds = arrays[f"{part}_labels"]
        kinds = kinds.reshape(len(kinds), -1)  # (n, labels)
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


def _finding(kinds: np.ndarray) -> str:
    """The label, or the numbers of those that are set."""
    return "|".join(str(k) for k in (kinds if len(kinds) == 1 else np.flatnonzero(kinds)))


def _without_copies(
    given: ImageSet, validation: ImageSet, test: ImageSet
) -> tuple[ImageSet, tuple[str, ...]]:
    """The training images but for copies of held-out ones, which the published files hold."""
    held = set(digests(validation.pixels)) | set(digests(test.pixels))
    unique = np.array([digest not in held for digest in digests(given.pixels)], dtype=bool)
    if unique.all():
        return given, ()
    left_out = f"{(~unique).sum()} training images are copies of held-out ones and were left out."
    return given.select(unique), (left_out,)
