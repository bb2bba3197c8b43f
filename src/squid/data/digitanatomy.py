"""DigitAnatomy (paper, sec. 4.1 and the appendix): digits 1 to 9 in order on a 3 x 3 grid.

A cell of an anomalous image can be missing, misordered (another digit from 1 to 9), flipped (turned
by 180 degrees) or novel (a zero). The condition of every cell is kept as ground truth. The paper's
algorithm writes past the grid, and its 'misordered' digit can be the right one; ours cannot.

The digits come with scikit-learn, from MNIST (70,000 images, Yann LeCun and Corinna Cortes,
CC BY-SA 3.0, https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz, 11 MB), or from
any ten classes of small images.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from einops import rearrange
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from squid.data.base import DataConfig, Progress
from squid.data.decode import read_many
from squid.data.files import subfolders
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits, check, join
from squid.data.reading import AS_DECLARED, Reading
from squid.data.tables import read_array, read_arrays, read_unpacked, to_gray
from squid.data.walk import find_images, natural
from squid.errors import ConfigError, DataError
from squid.places import data_candidates, missing

CONDITIONS = ("normal", "missing", "misordered", "flipped", "novel")
GRID = 3
DIGITS = np.arange(1, GRID * GRID + 1)
"""What a normal image holds, row by row."""
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
"""Share of the digit instances in each split; no instance is in two."""
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
"""Names that arrays of images and of their classes have in an npz file."""

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Digits:
    """Images of the digits 0 to 9, sorted by digit."""

    pixels: Tensor
    """(n, side, side) float32 in [0, 1]."""
    classes: np.ndarray
    """(n,) int64."""


class DigitAnatomy(DataConfig):
    """A synthetic anatomy whose anomalies are known cell by cell."""

    name: Literal["digitanatomy"] = "digitanatomy"
    source: str = BUNDLED
    """`sklearn`, or a path: an npz, a folder of one npz, of idx files, of 0.npy to 9.npy or of ten
    classes. A relative path is taken from the working directory, then from the data folder."""
    train: int = Field(1000, ge=1)
    """Normal training images."""
    validation: int = Field(100, ge=1)
    """Validation images of each class."""
    test: int = Field(200, ge=1)
    """Test images of each class."""
    anomalies: Literal["few_cells", "every_cell"] = "few_cells"
    """One to three anomalous cells in an image, or a random condition in every cell, as in the
    paper."""
    jitter: float = Field(0.05, ge=0.0, lt=0.5)
    """Largest shift (share of a cell) and change of scale of a digit."""
    noise: float = Field(0.0, ge=0.0)
    """Standard deviation of Gaussian noise on the pixels, which lie in [0, 1]."""
    instances: int = Field(1000, ge=3)
    """Most pictures used of each digit, over all splits (the paper: 1000)."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        digits = self.digits(size)
        normals = self._images(digits, "train", self.train, NORMAL)
        train = normals.select(self.chosen_normals(len(normals)))
        if added := self.contaminant_count(len(normals)):
            train = join(train, self._images(digits, "train", added, ANOMALOUS))
        validation = self._both(digits, "validation", self.validation)
        test = self._both(digits, "test", self.test)
        return check(Splits(train, validation, test, official=False))

    def resolved(self) -> Self:
        if self.source == BUNDLED:
            return self
        return self.model_copy(update={"source": str(_find_source(self.source))})

    def digits(self, size: int) -> Digits:
        """The digits of all splits, at the size of a cell."""
        if size % GRID:
            near = size - size % GRID
            raise ConfigError(
                f"DigitAnatomy needs a size that divides by {GRID}, not {size}; try {near}."
            )
        return read_digits(self.source, size // GRID, self.instances, self.rng(0), self.reading)

    def _both(self, digits: Digits, split: Split, n: int) -> ImageSet:
        """`n` random images of each label."""
        return join(
            self._images(digits, split, n, NORMAL), self._images(digits, split, n, ANOMALOUS)
        )

    def _images(self, digits: Digits, split: Split, n: int, label: int) -> ImageSet:
        """`n` random images of one split and label."""
        rng = self.rng(2, list(SHARES).index(split), label)
        if label == NORMAL:
            cells = np.zeros((n, len(DIGITS)), dtype=np.int64)
        else:
            cells = draw_conditions(self.anomalies, n, rng)
        pixels = self._render(digits_of_split(digits, split), cells, rng)
        kind = "normal" if label == NORMAL else "anomalous"
        return ImageSet(
            pixels=pixels,
            labels=np.full(n, label, dtype=np.int64),
            names=tuple(f"{split}-{kind}-{i:05d}" for i in range(n)),
            findings=tuple("|".join(CONDITIONS[k] for k in np.unique(row) if k) for row in cells),
            cells=cells,
        )

    def _render(self, digits: Digits, cells: np.ndarray, rng: np.random.Generator) -> Tensor:
        """(n, 9) conditions -> (n, 1, size, size) uint8."""
        chosen = _choose(digits, draw_classes(cells, rng), rng)  # (n, 9)
        pixels = digits.pixels[torch.from_numpy(chosen)]  # (n, 9, c, c)
        if self.jitter:
            pixels = _jittered(pixels, self.jitter, rng)
        # Conditions that change pixels rather than the choice of the digit.
        flipped = torch.from_numpy(cells == CONDITIONS.index("flipped"))[..., None, None]
        pixels = torch.where(flipped, pixels.flip(-1, -2), pixels)
        pixels = pixels * torch.from_numpy(cells != CONDITIONS.index("missing"))[..., None, None]
        images = join_cells(pixels[:, :, None])  # (n, 1, h, w)
        if self.noise:
            normal = rng.standard_normal(tuple(images.shape), dtype=np.float32)
            images = images + self.noise * torch.from_numpy(normal)
        return to_bytes(images)


def draw_conditions(anomalies: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 9) random conditions of anomalous images: at least one cell of each is not normal."""
    kinds = len(CONDITIONS)
    if anomalies == "few_cells":
        # One to three cells: those with the smallest of nine random numbers.
        count = rng.integers(1, 4, size=(n, 1))
        chosen = rng.random((n, len(DIGITS))).argsort(axis=1).argsort(axis=1) < count
        return np.where(chosen, rng.integers(1, kinds, size=chosen.shape), 0)
    cells = rng.integers(0, kinds, size=(n, len(DIGITS)))
    # Images without any anomalous cell get new random conditions.
    while not (anomalous := cells.any(axis=1)).all():
        cells[~anomalous] = rng.integers(0, kinds, size=(int((~anomalous).sum()), len(DIGITS)))
    return cells


def draw_classes(cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, 9) the digit that each cell shows, or would show if it were not missing."""
    other = (DIGITS - 1 + rng.integers(1, len(DIGITS), size=cells.shape)) % len(DIGITS) + 1
    digits = np.where(cells == CONDITIONS.index("misordered"), other, DIGITS)
    return np.where(cells == CONDITIONS.index("novel"), 0, digits)


def split_cells(images: Tensor) -> Tensor:
    """(n, 1, h, w) -> (n, 9, 1, h / 3, w / 3), row by row."""
    return rearrange(images, "n c (i h) (j w) -> n (i j) c h w", i=GRID, j=GRID)


def join_cells(cells: Tensor) -> Tensor:
    """The inverse of `split_cells`."""
    return rearrange(cells, "n (i j) c h w -> n c (i h) (j w)", i=GRID, j=GRID)


def digits_of_split(digits: Digits, split: Split) -> Digits:
    """The instances of one split: the same share of every class."""
    edges = np.cumsum([0.0, *SHARES.values()]).round(6)
    k = list(SHARES).index(split)
    chosen = []
    for digit in range(10):
        found = np.flatnonzero(digits.classes == digit)
        first, last = (round(edge * len(found)) for edge in (edges[k], edges[k + 1]))
        # With a handful of instances rounding could leave a split without one.
        first = min(max(first, k), len(found) - len(SHARES) + k)
        last = min(max(last, k + 1), len(found) - len(SHARES) + k + 1)
        chosen.append(found[first:last])
    index = np.concatenate(chosen)
    return Digits(digits.pixels[torch.from_numpy(index)], digits.classes[index])


def _choose(digits: Digits, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, 9) classes -> (n, 9) the index of a random instance of each."""
    starts = np.searchsorted(digits.classes, np.arange(10))
    counts = np.bincount(digits.classes, minlength=10)
    index: np.ndarray = starts[wanted] + (rng.random(wanted.shape) * counts[wanted]).astype(int)
    return index


def _jittered(pixels: Tensor, jitter: float, rng: np.random.Generator) -> Tensor:
    """(n, 9, c, c) with a random shift and scale of every digit."""
    n, side = len(pixels), pixels.shape[-1]
    draw = torch.from_numpy(rng.uniform(-jitter, jitter, size=(n * len(DIGITS), 3))).float()
    theta = torch.zeros(len(draw), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1.0 / (1.0 + draw[:, 2])
    theta[:, :, 2] = 2.0 * draw[:, :2]  # grid_sample's image is two units wide
    grid = F.affine_grid(theta, [len(draw), 1, side, side], align_corners=False)
    flat = rearrange(pixels, "n p h w -> (n p) 1 h w")
    moved = F.grid_sample(flat, grid, align_corners=False)
    return rearrange(moved, "(n p) 1 h w -> n p h w", n=n)


def to_bytes(images: Tensor) -> Tensor:
    """Gray values in [0, 1] -> uint8."""
    return (images.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)


def read_digits(
    source: str,
    side: int,
    per_class: int,
    rng: np.random.Generator,
    reading: Reading = AS_DECLARED,
) -> Digits:
    """At most `per_class` images of each digit in random order, `side` pixels square."""
    images, classes = _read_source(source, side, reading)
    chosen = []
    for digit in range(10):
        found = np.flatnonzero(classes == digit)
        if len(found) < 3:
            raise DataError(f"'{source}' has {len(found)} pictures of class {digit}; 3 are needed.")
        chosen.append(rng.permutation(found)[:per_class])
    index = np.concatenate(chosen)
    pixels = torch.from_numpy(np.ascontiguousarray(images[index])).float()[:, None] / 255.0
    if pixels.shape[-2:] != (side, side):
        pixels = F.interpolate(pixels, size=(side, side), mode="bicubic", antialias=True)
    return Digits(pixels[:, 0].clamp(0.0, 1.0), classes[index].astype(np.int64))


def _find_source(source: str) -> Path:
    """The file or folder of the digits, absolute."""
    candidates = data_candidates(Path(source))
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise DataError(missing(f"digit source {source}", candidates))
    return found


def _read_source(source: str, side: int, reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """(n, h, w) uint8 and (n,) classes."""
    if source == BUNDLED:
        from sklearn.datasets import load_digits

        bundled = load_digits()
        return (bundled.images * (255.0 / 16.0)).round().astype(np.uint8), bundled.target
    path = _find_source(source)
    if path.is_file():
        return _read_npz(path)
    if len(packed := list(path.glob("*.npz"))) == 1:
        return _read_npz(packed[0])
    if any("idx3-ubyte" in file.name for file in path.iterdir()):
        return _read_idx_folder(path)
    if (path / "0.npy").is_file():
        return _stack([read_array(path / f"{digit}.npy") for digit in range(10)])
    # Ten classes in natural order: the first is the novel one, the others are the grid's.
    folders = list(subfolders(path).values())
    if len(folders) != 10:
        raise DataError(f"{path} has {len(folders)} class folders; DigitAnatomy needs ten.")
    loaded = [read_many(find_images(folder).images, side, reading=reading) for folder in folders]
    return _stack([images.pixels[:, 0].numpy() for images in loaded])


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path)
    pairs = [pair for pair in ARRAYS if pair[0] in arrays and pair[1] in arrays]
    if not pairs:
        raise DataError(f"{path} holds no pair of arrays such as x_train and y_train.")
    images = [to_gray(arrays[pictures]) for pictures, _ in pairs]
    return np.concatenate(images), np.concatenate([arrays[k].reshape(-1) for _, k in pairs])


def _read_idx_folder(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    # Training digits first, the same order as in mnist.npz.
    pictures, labels = (
        sorted(natural(folder.glob(pattern)), key=lambda path: "train" not in path.name)
        for pattern in ("*idx3-ubyte*", "*idx1-ubyte*")
    )
    if len(pictures) != len(labels):
        raise DataError(
            f"{folder} has {len(pictures)} idx files of images, {len(labels)} of labels."
        )
    images = [_read_idx(path, axes=3) for path in pictures]
    return np.concatenate(images), np.concatenate([_read_idx(path, axes=1) for path in labels])


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """An idx file: two zero bytes, type 8 (unsigned byte), number of axes, their lengths, data."""
    try:
        data = read_unpacked(path)
        shape = np.frombuffer(data, dtype=">i4", count=axes, offset=4)
        if data[:4] != bytes([0, 0, 8, axes]):
            raise ValueError("wrong magic number")
        return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
    except ValueError as error:
        raise DataError(f"{path} is not a readable idx file ({error}).") from None


def _stack(per_class: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    counts = [len(images) for images in per_class]
    return np.concatenate(per_class), np.repeat(np.arange(len(per_class)), counts)
