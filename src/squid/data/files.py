"""Files of a dataset: which ones a folder holds, and how they become splits."""

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import Progress
from squid.data.decode import OnError, read_many
from squid.data.image_set import FileSet, ImageSet, Splits, check
from squid.data.reading import Reading
from squid.data.walk import is_hidden, natural
from squid.errors import DataError

Unreadable = Literal["refuse", "skip"]
"""What to do with a file that is not a readable image."""

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in a gray value (ITU-R 601), the same as Pillow's."""


def read_files(
    files: FileSet,
    size: int,
    unreadable: Unreadable,
    progress: Progress | None,
    reading: Reading,
) -> tuple[ImageSet, tuple[str, ...]]:
    """The images, and a warning for each file that was skipped."""
    on_error: OnError = "raise" if unreadable == "refuse" else "skip"
    loaded = read_many(files.paths, size, on_error=on_error, progress=progress, reading=reading)
    kept = files.select(loaded.places)
    images = ImageSet(
        pixels=loaded.pixels,
        labels=kept.labels,
        names=kept.names,
        patients=kept.patients,
        findings=kept.findings,
        boxes=kept.boxes,
        columns=kept.columns,
    )
    return images, tuple(f"Skipped: {reason}" for _, reason in loaded.skipped)


def read_splits(
    train: FileSet | ImageSet,
    validation: FileSet | ImageSet,
    test: FileSet | ImageSet,
    *,
    size: int,
    official: bool,
    reading: Reading,
    unreadable: Unreadable = "refuse",
    progress: Progress | None = None,
    warnings: tuple[str, ...] = (),
) -> Splits:
    """The checked splits, decoded where they are files; `progress` counts over all three."""
    parts = (train, validation, test)
    done, total = 0, sum(len(part) for part in parts)
    images: list[ImageSet] = []
    for part in parts:
        if isinstance(part, FileSet):
            offset = _offset(progress, done, total)
            read, skipped = read_files(part, size, unreadable, offset, reading)
            images.append(read)
            warnings += skipped
        else:
            images.append(part)
        done += len(part)
    return check(Splits(images[0], images[1], images[2], official, warnings))


def _offset(progress: Progress | None, done: int, total: int) -> Progress | None:
    """A progress of one part, as a progress of all of them."""
    return None if progress is None else lambda count, _: progress(done + count, total)


def subfolders(folder: Path) -> dict[str, Path]:
    """The visible folders in a folder, by lower-case name."""
    return {
        path.name.lower(): path
        for path in natural(folder.iterdir())
        if path.is_dir() and not is_hidden(path.name)
    }


def read_table(path: Path, *needed: str) -> list[dict[str, str]]:
    """The rows of a CSV file, packed with gzip or not, whose header names the columns `needed`."""
    if not path.is_file():
        raise DataError(f"There is no table {path}.")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable CSV file ({error}).") from None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    absent = [name for name in needed if name not in (rows.fieldnames or ())]
    if absent:
        raise DataError(f"{path} has no column '{absent[0]}'.")
    return list(rows)


def read_arrays(path: Path, *needed: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file, `needed` among them; pickled objects are refused."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable npz file ({error}).") from None
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise DataError(f"{path} holds no array '{absent[0]}', only {', '.join(arrays)}.")
    return arrays


def to_gray(images: np.ndarray) -> np.ndarray:
    """(n, h, w) or (n, h, w, 1 or 3) uint8 -> (n, h, w) uint8."""
    if images.dtype != np.uint8 or not (images.ndim == 3 or images.shape[3:] in ((1,), (3,))):
        raise DataError(
            f"Images must be uint8 of shape (n, h, w) or (n, h, w, 3), "
            f"not {images.dtype} of {images.shape}."
        )
    if images.ndim == 3:
        return images
    if images.shape[-1] == 1:
        return images[..., 0]
    gray: np.ndarray = np.round(images @ LUMA).astype(np.uint8)
    return gray
