"""Image files before they are decoded: a dataset is split first, then what it needs is read."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import Progress
from squid.data.decode import OnError, read_many
from squid.data.image import SUFFIXES
from squid.data.image_set import ImageSet, Splits, check, places

Unreadable = Literal["refuse", "skip"]
"""What to do with a file that is not a readable image."""


@dataclass(frozen=True)
class Listing:
    """Files with their labels."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    labels: np.ndarray
    patients: tuple[str, ...] | None = None
    findings: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, where: np.ndarray | Sequence[int]) -> "Listing":
        index = places(where)

        def pick(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return None if value is None else tuple(value[i] for i in index)

        return Listing(
            paths=tuple(self.paths[i] for i in index),
            names=tuple(self.names[i] for i in index),
            labels=self.labels[index],
            patients=pick(self.patients),
            findings=pick(self.findings),
        )

    def __add__(self, other: "Listing") -> "Listing":
        """Both; patients and findings must be known of both or of neither."""
        patients = None if self.patients is None else self.patients + (other.patients or ())
        findings = None if self.findings is None else self.findings + (other.findings or ())
        return Listing(
            paths=self.paths + other.paths,
            names=self.names + other.names,
            labels=np.concatenate([self.labels, other.labels]),
            patients=patients,
            findings=findings,
        )

    def read(
        self, size: int, unreadable: Unreadable, progress: Progress | None
    ) -> tuple[ImageSet, tuple[str, ...]]:
        """The images, and a warning for each file that was skipped."""
        on_error: OnError = "raise" if unreadable == "refuse" else "skip"
        reading = read_many(self.paths, size, on_error=on_error, progress=progress)
        kept = self.select(reading.kept)
        images = ImageSet(reading.pixels, kept.labels, kept.names, kept.patients, kept.findings)
        return images, tuple(f"Skipped: {reason}" for _, reason in reading.skipped)


def read_splits(
    train: Listing,
    validation: Listing,
    test: Listing,
    *,
    size: int,
    official: bool,
    unreadable: Unreadable,
    progress: Progress | None,
    warnings: tuple[str, ...] = (),
) -> Splits:
    """The checked splits; `progress` counts the files of all three together."""
    done, total = 0, len(train) + len(validation) + len(test)
    images: list[ImageSet] = []
    for listing in (train, validation, test):
        step = _offset(progress, done, total)
        read, skipped = listing.read(size, unreadable, step)
        images.append(read)
        warnings += skipped
        done += len(listing)
    return check(Splits(images[0], images[1], images[2], official, warnings))


def _offset(progress: Progress | None, done: int, total: int) -> Progress | None:
    return None if progress is None else lambda count, _: progress(done + count, total)


def image_files(folder: Path) -> list[Path]:
    """All images below a folder in natural order; hidden files and folders are left out."""
    found = (
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not _hidden(path.relative_to(folder))
    )
    return natural(path for path in found if path.is_file())


def natural(paths: Iterable[Path]) -> list[Path]:
    """Sorted so that image2 comes before image10."""

    def key(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", path.as_posix().lower())
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    return sorted(paths, key=lambda path: (key(path), path.as_posix()))


def subfolders(folder: Path) -> dict[str, Path]:
    """The visible folders in a folder, by lower-case name."""
    return {
        path.name.lower(): path
        for path in natural(folder.iterdir())
        if path.is_dir() and not _hidden(Path(path.name))
    }


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
