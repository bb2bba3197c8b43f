"""DigitAnatomy's digits: scikit-learn's own, MNIST, or any ten classes of small pictures."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from squid.data.arrays import read_arrays, to_gray
from squid.data.decode import read_many
from squid.data.files import image_files, natural, subfolders
from squid.errors import DataError
from squid.places import data_candidates, missing

BUNDLED = "sklearn"
ARRAYS = (
    ("x_train", "y_train"),
    ("x_test", "y_test"),
    ("train_images", "train_labels"),
    ("val_images", "val_labels"),
    ("test_images", "test_labels"),
    ("images", "labels"),
    ("x", "y"),
    ("X", "y"),
    ("data", "target"),
)
"""Pairs of names under which an npz may hold pictures and their classes."""


@dataclass(frozen=True)
class Digits:
    """Pictures of the classes 0 to 9."""

    pixels: Tensor
    """(n, side, side) float32 in [0, 1]."""
    classes: np.ndarray
    """(n,) int64."""


def read_digits(source: str, side: int, per_class: int, rng: np.random.Generator) -> Digits:
    """At most `per_class` pictures of each class in random order, `side` pixels square."""
    images, classes = _read(source, side)
    chosen = []
    for digit in range(10):
        found = np.flatnonzero(classes == digit)
        if len(found) < 3:
            raise DataError(f"'{source}' has {len(found)} pictures of class {digit}; 3 are needed.")
        chosen.append(rng.permutation(found)[:per_class])
    index = np.concatenate(chosen)
    return Digits(_fit(images[index], side), classes[index].astype(np.int64))


def find_source(source: str) -> Path:
    """The file or folder of the digits, absolute."""
    candidates = data_candidates(Path(source))
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise DataError(missing(f"digit source {source}", candidates))
    return found


def _read(source: str, side: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, h, w) uint8 and (n,) classes."""
    if source == BUNDLED:
        from sklearn.datasets import load_digits

        bundled = load_digits()
        return (bundled.images * (255.0 / 16.0)).round().astype(np.uint8), bundled.target
    path = find_source(source)
    if path.is_file():
        return _read_npz(path)
    if len(arrays := list(path.glob("*.npz"))) == 1:
        return _read_npz(arrays[0])
    if any("idx3-ubyte" in file.name for file in path.iterdir()):
        return _read_idx_folder(path)
    if (path / "0.npy").is_file():
        return _stack([np.load(path / f"{digit}.npy") for digit in range(10)])
    return _read_class_folders(path, side)


def _fit(images: np.ndarray, side: int) -> Tensor:
    """Resized smoothly, in [0, 1]."""
    pixels = torch.from_numpy(np.ascontiguousarray(images)).float()[:, None] / 255.0
    if pixels.shape[-2:] != (side, side):
        pixels = F.interpolate(pixels, size=(side, side), mode="bicubic", antialias=True)
    return pixels[:, 0].clamp(0.0, 1.0)  # (n, side, side)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path)
    pairs = [pair for pair in ARRAYS if pair[0] in arrays and pair[1] in arrays]
    if not pairs:
        raise DataError(f"{path} holds no pair of arrays such as x_train and y_train.")
    images = [to_gray(arrays[pictures]) for pictures, _ in pairs]
    return np.concatenate(images), np.concatenate([arrays[k].reshape(-1) for _, k in pairs])


def _read_idx_folder(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    pictures = natural(folder.glob("*idx3-ubyte*"))
    labels = natural(folder.glob("*idx1-ubyte*"))
    if len(pictures) != len(labels):
        raise DataError(
            f"{folder} has {len(pictures)} idx files of images, {len(labels)} of labels."
        )
    images = [_read_idx(path, axes=3) for path in pictures]
    return np.concatenate(images), np.concatenate([_read_idx(path, axes=1) for path in labels])


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """The idx format: two zero bytes, type 8 (unsigned byte), number of axes, each length, data."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        shape = np.frombuffer(data, dtype=">i4", count=axes, offset=4)
        if data[:4] != bytes([0, 0, 8, axes]):
            raise ValueError("wrong magic number")
        return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is not a readable idx file ({error}).") from None


def _read_class_folders(root: Path, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes in natural order: the first is the novel one, the others sit in the grid."""
    folders = list(subfolders(root).values())
    if len(folders) != 10:
        raise DataError(f"{root} has {len(folders)} class folders; DigitAnatomy needs ten.")
    readings = [read_many(image_files(folder), side) for folder in folders]
    return _stack([reading.pixels[:, 0].numpy() for reading in readings])


def _stack(per_class: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    counts = [len(images) for images in per_class]
    return np.concatenate(per_class), np.repeat(np.arange(len(per_class)), counts)
