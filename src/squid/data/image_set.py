"""Labelled images, the three splits of a dataset, and the check that nothing leaks between them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from squid.data.applicable import FLAT, are_flat
from squid.errors import DataError

NORMAL = 0
ANOMALOUS = 1

Columns = Mapping[str, tuple[str, ...]]
"""More about each image, such as `view`, `sex` and `age`; '' where it is unknown."""


class Box(NamedTuple):
    """A marked finding: its upper left corner and its size, as shares of the image's sides."""

    finding: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class FileSet:
    """Labelled image files before they are decoded, with the fields of `ImageSet`."""

    paths: tuple[Path, ...]
    labels: np.ndarray
    names: tuple[str, ...]
    patients: tuple[str, ...] | None = None
    findings: tuple[str, ...] | None = None
    boxes: tuple[tuple[Box, ...], ...] | None = None
    columns: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"FileSet({_counted(self.labels)})"

    def select(self, where: np.ndarray | Sequence[int]) -> "FileSet":
        """The files of a boolean mask, or those at the given indices, in that order."""
        return _select(self, where)


@dataclass(frozen=True)
class ImageSet:
    """Images of one split, in a fixed order; every field has one entry per image."""

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
    boxes: tuple[tuple[Box, ...], ...] | None = None
    """Where findings were marked; an image without a box can still have findings."""
    columns: Columns = field(default_factory=dict)

    def __post_init__(self) -> None:
        described = {one.name: getattr(self, one.name) for one in fields(self)}
        columns = described.pop("columns")
        for name, values in {**described, **columns}.items():
            if values is not None and len(values) != len(self.names):
                raise ValueError(f"{len(values)} {name} for {len(self.names)} names")
        if len(set(self.names)) != len(self.names):
            raise DataError("Two images of one split have the same name; rename one of them.")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        height, width = self.pixels.shape[-2:]
        return f"ImageSet({_counted(self.labels)}, {width} x {height} pixels)"

    def select(self, where: np.ndarray | Sequence[int]) -> "ImageSet":
        """The images of a boolean mask, or those at the given indices, in that order."""
        return _select(self, where)

    @property
    def normals(self) -> "ImageSet":
        return self.select(self.labels == NORMAL)

    @property
    def anomalous(self) -> "ImageSet":
        return self.select(self.labels == ANOMALOUS)


def _counted(labels: np.ndarray) -> str:
    return f"{(labels == NORMAL).sum():,} normal, {(labels == ANOMALOUS).sum():,} anomalous"


Labelled = TypeVar("Labelled", ImageSet, FileSet)
"""Labelled images, decoded or not."""


def _select(images: Labelled, where: np.ndarray | Sequence[int]) -> Labelled:
    index = np.asarray(where)
    index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
    chosen = {one.name: _take(getattr(images, one.name), index) for one in fields(images)}
    return replace(images, **chosen)


def _take(values: Any, index: np.ndarray) -> Any:
    """The entries of one field at the given indices."""
    match values:
        case None:
            return None
        case Tensor():
            return values[torch.from_numpy(index)]
        case np.ndarray():
            return values[index]
        case Mapping():
            return {name: _take(column, index) for name, column in values.items()}
        case _:
            return tuple(values[i] for i in index)


def join(first: Labelled, second: Labelled) -> Labelled:
    """The images of both; what is known of only one of them (patients, columns ...) is dropped."""
    joined = {
        one.name: _concatenate(getattr(first, one.name), getattr(second, one.name))
        for one in fields(first)
    }
    return replace(first, **joined)


def _concatenate(first: Any, second: Any) -> Any:
    """The entries of one field of two sets."""
    if first is None or second is None:
        return None
    match first:
        case Tensor():
            return torch.cat([first, second])
        case np.ndarray():
            return np.concatenate([first, second])
        case Mapping():
            return {name: first[name] + second[name] for name in first if name in second}
        case _:
            return first + second


class Row(NamedTuple):
    """One line of the table that describes the splits."""

    split: str
    normal: int
    anomalous: int
    patients: int | None
    """None where patients are not known."""


@dataclass(frozen=True)
class Splits:
    """The images of a dataset: to train on, to calibrate and select with, and to report on."""

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    official: bool
    """Whether the publisher made the split; else it was made here at random."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={images!r}" for name, images in self.items())
        return f"Splits({parts})"

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


def digests(pixels: Tensor) -> list[str]:
    """One key for each of (n, 1, h, w), equal where the pixels are equal."""
    return [hashlib.sha256(image.tobytes()).hexdigest() for image in pixels.numpy()]


def empty(size: int) -> ImageSet:
    """A split without images."""
    pixels = torch.zeros(0, 1, size, size, dtype=torch.uint8)
    return ImageSet(pixels, np.zeros(0, dtype=np.int64), ())


def check(splits: Splits) -> Splits:
    """The splits without images of one gray value, of which no score means anything, with a warning
    about each, and about patients that official splits share; any other leak is an error."""
    splits = _without_flat(splits)
    if len(splits.train) == 0:
        raise DataError("There is no normal image to train on; check the dataset's root.")
    seen: dict[str, tuple[str, str]] = {}
    for split, images in splits.items():
        for digest, name in zip(digests(images.pixels), images.names, strict=True):
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


def _without_flat(splits: Splits) -> Splits:
    """Files of one gray value are left out when they are read; arrays are not."""
    parts: dict[str, ImageSet] = {}
    warnings = []
    for split, images in splits.items():
        flat = are_flat(images.pixels).numpy()
        parts[split] = images.select(~flat) if flat.any() else images
        warnings += [
            f"Left out: {images.names[i]} of {split}: {FLAT}." for i in np.flatnonzero(flat)
        ]
    return Splits(**parts, official=splits.official, warnings=(*splits.warnings, *warnings))


def _shared_patients(splits: Splits) -> Iterator[str]:
    """A sentence about each pair of splits that have patients in common."""
    for (a, first), (b, second) in combinations(splits.items(), 2):
        both = set(first.patients or ()) & set(second.patients or ())
        if both:
            yield f"{len(both)} patients are in {a} and in {b}, for example '{min(both)}'."


def draw_groups(groups: Sequence[Any], count: int, rng: np.random.Generator) -> np.ndarray:
    """A mask of up to `count` images in random whole groups, so that no group is on both sides."""
    members: dict[Any, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    mask = np.zeros(len(groups), dtype=bool)
    keys = list(members)
    for key in (keys[i] for i in rng.permutation(len(keys))):
        # A group that is too large is passed over: a smaller one may still fit.
        if mask.sum() + len(members[key]) <= count:
            mask[members[key]] = True
    return mask


def split_by_patient(
    patients: Sequence[str], validation_share: float, test_share: float, rng: np.random.Generator
) -> np.ndarray:
    """(n,) "train", "validation" or "test" for each image; a patient's images stay together."""
    unique, of_image = np.unique(np.array(patients), return_inverse=True)
    # Patients are ranked at random: the first ranks validate, the next ones test, the rest trains.
    ends = np.round(np.cumsum([validation_share, test_share]) * len(unique))
    rank = rng.permutation(len(unique))
    names = np.array(["validation", "test", "train"])
    groups: np.ndarray = names[np.searchsorted(ends, rank, side="right")][of_image]
    return groups
