"""Images with labels, the three splits of a dataset, and the check that nothing leaks between."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from squid.errors import DataError

NORMAL = 0
ANOMALOUS = 1


@dataclass(frozen=True)
class ImageSet:
    """Images of one split, in a fixed order."""

    pixels: Tensor
    """(n, 1, size, size) uint8, on the CPU."""
    labels: np.ndarray
    """(n,) int64, NORMAL or ANOMALOUS."""
    names: tuple[str, ...]
    """Unique within the set."""
    patients: tuple[str, ...] | None = None
    findings: tuple[str, ...] | None = None
    """'|'-joined, '' for a normal image."""
    cells: np.ndarray | None = None
    """(n, 9) index into `digitanatomy.CONDITIONS`; DigitAnatomy only."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and len(value) != len(self.names):
                raise ValueError(f"{len(value)} {field.name} for {len(self.names)} names")
        if len(set(self.names)) != len(self.names):
            raise DataError("Two images of one split have the same name; rename one of them.")

    def __len__(self) -> int:
        return len(self.names)

    def select(self, where: np.ndarray | Sequence[int]) -> "ImageSet":
        """The images of a boolean mask, or those at the given places, in that order."""
        index = places(where)

        def pick(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return None if value is None else tuple(value[i] for i in index)

        return ImageSet(
            pixels=self.pixels[torch.from_numpy(index)],
            labels=self.labels[index],
            names=tuple(self.names[i] for i in index),
            patients=pick(self.patients),
            findings=pick(self.findings),
            cells=None if self.cells is None else self.cells[index],
        )

    @property
    def normals(self) -> "ImageSet":
        return self.select(self.labels == NORMAL)

    @property
    def anomalous(self) -> "ImageSet":
        return self.select(self.labels == ANOMALOUS)


class Row(NamedTuple):
    """One line of the table that describes the splits."""

    split: str
    normal: int
    anomalous: int
    patients: int | None
    """None where patients are not known."""


@dataclass(frozen=True)
class Splits:
    """What a dataset gives: images to train on, to calibrate and select with, and to report on."""

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    official: bool
    """The split was given, not made by us."""
    warnings: tuple[str, ...] = ()

    def items(self) -> Iterator[tuple[str, ImageSet]]:
        yield from (("train", self.train), ("validation", self.validation), ("test", self.test))

    def table(self) -> list[Row]:
        """How many images and patients each split holds."""
        return [
            Row(
                split=name,
                normal=int((images.labels == NORMAL).sum()),
                anomalous=int((images.labels == ANOMALOUS).sum()),
                patients=None if images.patients is None else len(set(images.patients)),
            )
            for name, images in self.items()
        ]

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any name, label or pixel of any split."""
        digest = hashlib.sha256()
        for name, images in self.items():
            digest.update(repr((name, images.names, images.labels.tolist())).encode())
            digest.update(images.pixels.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def places(where: np.ndarray | Sequence[int]) -> np.ndarray:
    """A boolean mask or a list of places, as places."""
    array = np.asarray(where)
    return np.flatnonzero(array) if array.dtype == bool else array.astype(np.int64)


def digests(images: ImageSet) -> list[str]:
    """One key per image, equal where the pixels are equal."""
    return [hashlib.sha256(image.tobytes()).hexdigest() for image in images.pixels.numpy()]


def join(first: ImageSet, second: ImageSet) -> ImageSet:
    """The images of both; what only one of them knows (patients, findings, cells) is dropped."""

    def both(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if a is None or b is None else a + b

    known = first.cells is not None and second.cells is not None
    return ImageSet(
        pixels=torch.cat([first.pixels, second.pixels]),
        labels=np.concatenate([first.labels, second.labels]),
        names=first.names + second.names,
        patients=both(first.patients, second.patients),
        findings=both(first.findings, second.findings),
        cells=np.concatenate([first.cells, second.cells]) if known else None,
    )


def empty(size: int) -> ImageSet:
    """A split that the data does not have."""
    pixels = torch.zeros(0, 1, size, size, dtype=torch.uint8)
    return ImageSet(pixels, np.zeros(0, dtype=np.int64), ())


def check(splits: Splits) -> Splits:
    """The same splits, warned of patients that official ones share; any other leak is an error."""
    if len(splits.train) == 0:
        raise DataError("There is no normal image to train on; check the dataset's root.")
    seen: dict[str, tuple[str, str]] = {}
    for split, images in splits.items():
        for digest, name in zip(digests(images), images.names, strict=True):
            first_split, first_name = seen.setdefault(digest, (split, name))
            if first_split != split:
                raise DataError(
                    f"'{name}' of {split} holds the same image as '{first_name}' of {first_split}; "
                    f"remove one of them."
                )
    warnings = list(_shared_patients(splits))
    if warnings and not splits.official:
        raise DataError(warnings[0])
    return replace(splits, warnings=splits.warnings + tuple(warnings))


def _shared_patients(splits: Splits) -> Iterator[str]:
    for (a, first), (b, second) in combinations(splits.items(), 2):
        both = set(first.patients or ()) & set(second.patients or ())
        if both:
            yield f"{len(both)} patients are in {a} and in {b}, for example '{min(both)}'."


def draw_groups(groups: Sequence[Any], count: int, rng: np.random.Generator) -> np.ndarray:
    """A mask of up to `count` images, drawn as whole groups, so that none is on both sides."""
    members: dict[Any, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    mask = np.zeros(len(groups), dtype=bool)
    keys = list(members)
    for key in (keys[i] for i in rng.permutation(len(keys))):
        if mask.sum() + len(members[key]) <= count:
            mask[members[key]] = True
    return mask
