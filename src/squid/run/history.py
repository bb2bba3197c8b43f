"""Tables that grow while a training goes on: losses by epoch, and scores of snapshots."""

import csv
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np

from squid.data.tables import read_arrays
from squid.durable import appending, replacing
from squid.errors import DataError, RunError
from squid.run.files import check_file
from squid.train.monitor import Epoch

Row = dict[str, str]
NEEDED = ("stage", "epoch", "seconds", "images_per_second")


class DamagedHistoryWarning(UserWarning):
    """The end of a history is damaged and left out."""


class History:
    """`history.csv`: one line per epoch; stages with other losses widen the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[str] | None = None  # once this object has written

    def add(self, epoch: Epoch) -> None:
        row: dict[str, str | float] = {
            "stage": epoch.stage,
            "epoch": epoch.epoch,
            **{f"rate.{name}": value for name, value in epoch.rates.items()},
            **epoch.losses,
            "seconds": round(epoch.seconds, 3),
            "images_per_second": round(epoch.images_per_second, 1),
        }
        if self._columns is None or not row.keys() <= set(self._columns):
            # A resumed run repeats the epochs since its state was saved: their lines are replaced.
            here = epoch.stage, str(epoch.epoch)
            rows = list(takewhile(lambda r: (r["stage"], r["epoch"]) != here, self.rows()))
            self._columns = list(dict.fromkeys([*(rows[0] if rows else ()), *row]))
            self._replace(self._columns, rows)
        with appending(self._path) as file:
            csv.DictWriter(file, self._columns, restval="").writerow(row)

    def _replace(self, columns: Sequence[str], rows: Iterable[Row]) -> None:
        with (
            replacing(self._path) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)

    def rows(self) -> list[Row]:
        """All lines up to the first that is damaged: a power cut may cut the last one."""
        if not check_file(self._path).is_file():
            return []
        # Bytes that are no text become letters that are no numbers.
        with self._path.open(newline="", encoding="utf-8", errors="replace") as file:
            table = csv.DictReader(file)
            # Without its columns it is damaged from the first line on, whatever follows.
            headed = _has_columns(table)
            found = list(_until_error(table)) if headed else [{}]
        rows = list(takewhile(_is_whole, found))
        if len(rows) < len(found):
            line = len(rows) + 2 if headed else 1
            message = f"{self._path} is damaged in line {line}; the rest is left out."
            warnings.warn(message, DamagedHistoryWarning, stacklevel=3)
        return rows


def _has_columns(table: "csv.DictReader[str]") -> bool:
    try:
        return set(NEEDED) <= set(table.fieldnames or ())
    except csv.Error:
        return False


def _until_error(table: Iterable[Row]) -> Iterator[Row]:
    """The lines, with an empty one for the first that cannot be read."""
    try:
        yield from table
    except csv.Error:
        yield {}


def _is_whole(row: Row) -> bool:
    """Whether a line has a stage, and numbers or nothing in all other columns."""
    if not set(NEEDED) <= row.keys() or None in row or None in row.values():
        return False
    try:
        numbers = [float(value) for name, value in row.items() if name != "stage" and value]
    except ValueError:
        return False
    return row["epoch"].isdecimal() and all(map(math.isfinite, numbers))


def read_snapshots(path: Path) -> dict[str, np.ndarray] | None:
    """`epochs` (s,), and per split `validation`, `test`: scores (s, n); None without a file."""
    if not path.is_file():
        return None
    try:
        arrays = read_arrays(path, "epochs", "validation", "test")
        epochs, *scores = (arrays.pop("epochs"), *arrays.values())
        fit = epochs.ndim == 1 and all(a.ndim == 2 and len(a) == len(epochs) for a in scores)
        if not fit or not all(np.isfinite(a).all() for a in (epochs, *scores)):
            raise DataError("it does not fit")
    except (DataError, TypeError):
        raise RunError(f"{path} is damaged; remove it to go on without these snapshots.") from None
    return {"epochs": epochs, **arrays}


def write_snapshots(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]
