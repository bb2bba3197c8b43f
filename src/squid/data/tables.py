"""Tables and arrays that come with a dataset, read within bounds.

They come from outside: a few kilobytes can unpack to gigabytes, and a name in a table can lead out
of the dataset's folder.
"""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from squid.data.opening import read_bounded
from squid.errors import DataError

MAX_BYTES = 2**30
"""Limit for a table, unpacked, and for arrays that are packed better than images are."""
MAX_RATIO = 50
"""To which images are packed at most; blank ones are packed to a thousandth."""

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in a gray value (ITU-R 601), the same as Pillow's."""


def read_table(
    path: Path, *needed: str, integers: Iterable[str] = (), numbers: Iterable[str] = ()
) -> list[dict[str, str]]:
    """The rows of a CSV file, packed with gzip or not, whose header names the columns `needed`.

    Cells of `integers` hold an integer each, those of `numbers` a number or nothing.
    """
    try:
        text = read_unpacked(path).decode("utf-8-sig")
        table = csv.DictReader(io.StringIO(text, newline=""), restval="")
        rows, columns = list(table), table.fieldnames or ()
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable CSV file ({error}).") from None
    absent = [name for name in needed if name not in columns]
    if absent:
        raise DataError(f"{path} has no column '{absent[0]}'.")
    for names, kind in ((integers, int), (numbers, float)):
        for name in names:
            _check_numbers(path, rows, name, kind)
    return rows


def _check_numbers(
    path: Path, rows: list[dict[str, str]], name: str, kind: type[int] | type[float]
) -> None:
    for number, row in enumerate(rows, 1):
        try:
            if row[name] or kind is int:
                kind(row[name])
        except ValueError:
            raise DataError(
                f"{path} holds '{row[name][:40]}' for {name} in row {number}; correct it."
            ) from None


def read_unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked where its name ends in .gz."""
    if not path.is_file():
        raise DataError(f"There is no table {path}.")
    data = read_bounded(path, MAX_BYTES)
    if path.suffix != ".gz":
        return data
    try:
        with gzip.open(io.BytesIO(data)) as packed:
            data = packed.read(MAX_BYTES + 1)
    except Exception as error:  # gzip and zlib raise several of their own
        raise DataError(f"{path} is not a readable gzip file ({error}).") from None
    if len(data) > MAX_BYTES:
        raise DataError(f"{path} unpacks to more than {MAX_BYTES // 2**20} MiB; make it smaller.")
    return data


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(read_bounded(path, MAX_BYTES))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DataError(f"{path} is not readable JSON ({reason}).") from None


def read_arrays(path: Path, *needed: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file, `needed` among them; pickled objects are refused."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as packed:
            unpacked = sum(member.file_size for member in packed.infolist())
        if unpacked > max(MAX_BYTES, MAX_RATIO * path.stat().st_size):
            raise ValueError(f"it unpacks to {unpacked // 2**20:,} MiB")
        with np.load(path) as file:
            arrays = dict(file)
    except Exception as error:  # on broken bytes zipfile, zlib and NumPy raise many kinds
        raise DataError(f"{path} is not a readable npz file ({_reason(error)}).") from None
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise DataError(f"{path} holds no array '{absent[0]}', only {', '.join(arrays)}.")
    return arrays


def read_array(path: Path) -> np.ndarray:
    """The array of an npy file; pickled objects are refused."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        array: np.ndarray = np.load(path)
    except Exception as error:  # on broken bytes NumPy raises many kinds
        raise DataError(f"{path} is not a readable npy file ({_reason(error)}).") from None
    return array


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it says that it holds more than fits in memory"
    if "pickle" in str(error):  # NumPy advises to allow it
        return "it holds Python objects, which are not loaded"
    return str(error).partition("\n")[0] or type(error).__name__


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


def inside(folder: Path, name: str) -> Path:
    """The path of a file that a table names below a folder; no name leads out of it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise DataError(f"'{name}' is not below {folder}; name files by their path in it.")
    return folder / path
