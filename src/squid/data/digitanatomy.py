"""DigitAnatomy (paper, sec. 4.1 and the appendix): digits 1 to 9 in order on a 3 x 3 grid.

A cell of an anomalous image may be missing, misordered (another digit from 1 to 9), flipped (turned
by 180 degrees) or novel (a zero), and the condition of every cell is kept as ground truth. The
paper's algorithm writes past the grid and may draw a 'misordered' digit that is in its place; ours
does not.
"""

from typing import Literal, Self

import numpy as np
import torch
from einops import rearrange
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from squid.data.base import DataConfig, Progress
from squid.data.digits import BUNDLED, Digits, find_source, read_digits
from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet, Splits, check, join
from squid.errors import ConfigError

CONDITIONS = ("normal", "missing", "misordered", "flipped", "novel")
GRID = 3
DIGITS = np.arange(1, GRID * GRID + 1)
"""What a normal image holds, row by row."""
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
"""Of the digit instances; no instance serves two splits."""

Split = Literal["train", "validation", "test"]


class DigitAnatomy(DataConfig):
    """A made-up anatomy whose anomalies are known cell by cell."""

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
    rule: Literal["sparse", "paper"] = "sparse"
    """Anomalies: in one to three cells (`sparse`), or every cell draws its condition (`paper`)."""
    jitter: float = Field(0.05, ge=0.0, lt=0.5)
    """Largest shift (share of a cell) and change of scale of a digit."""
    noise: float = Field(0.0, ge=0.0)
    """Standard deviation of Gaussian noise on the pixels, which lie in [0, 1]."""
    instances: int = Field(1000, ge=3)
    """Most pictures used of each digit, over all splits (the paper: 1000)."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        digits = self._digits(size)
        train = self._draw(digits, "train", self.train, NORMAL)
        if self.contamination:
            wanted = self.contaminant_count(self.train)
            train = join(train, self._draw(digits, "train", wanted, ANOMALOUS))
        validation = self._draw_both(digits, "validation", self.validation)
        test = self._draw_both(digits, "test", self.test)
        return check(Splits(train, validation, test, official=False))

    def resolved(self) -> Self:
        if self.source == BUNDLED:
            return self
        return self.model_copy(update={"source": str(find_source(self.source))})

    def clean_cells(self, size: int, split: Split = "train") -> tuple[Tensor, np.ndarray]:
        """Digits (n, 1, cell, cell) uint8 of a split with their class 0 to 9, not jittered."""
        bank = _share(self._digits(size), split)
        return _to_bytes(bank.pixels)[:, None], bank.classes

    def _digits(self, size: int) -> Digits:
        if size % GRID:
            near = size - size % GRID
            raise ConfigError(
                f"DigitAnatomy needs a size that divides by {GRID}, not {size}; try {near}."
            )
        return read_digits(self.source, size // GRID, self.instances, self.rng(0))

    def _draw_both(self, digits: Digits, split: Split, n: int) -> ImageSet:
        return join(self._draw(digits, split, n, NORMAL), self._draw(digits, split, n, ANOMALOUS))

    def _draw(self, digits: Digits, split: Split, n: int, label: int) -> ImageSet:
        rng = self.rng(2, list(SHARES).index(split), label)
        if label == NORMAL:
            cells = np.zeros((n, len(DIGITS)), dtype=np.int64)
        else:
            cells = draw_conditions(self.rule, n, rng)
        pixels = self._render(_share(digits, split), cells, rng)
        kind = "normal" if label == NORMAL else "anomalous"
        return ImageSet(
            pixels=pixels,
            labels=np.full(n, label, dtype=np.int64),
            names=tuple(f"{split}-{kind}-{i:05d}" for i in range(n)),
            findings=tuple(_findings(row) for row in cells),
            cells=cells,
        )

    def _render(self, bank: Digits, cells: np.ndarray, rng: np.random.Generator) -> Tensor:
        """(n, 9) conditions -> (n, 1, size, size) uint8."""
        place = _instances(bank, digits_of(cells, rng), rng)  # (n, 9)
        pixels = bank.pixels[torch.from_numpy(place)]  # (n, 9, c, c)
        if self.jitter:
            pixels = _jittered(pixels, self.jitter, rng)
        flipped = torch.from_numpy(cells == CONDITIONS.index("flipped"))[..., None, None]
        pixels = torch.where(flipped, pixels.flip(-1, -2), pixels)
        pixels = pixels * torch.from_numpy(cells != CONDITIONS.index("missing"))[..., None, None]
        images = join_cells(pixels[:, :, None])  # (n, 1, h, w)
        if self.noise:
            images = images + self.noise * _normal(images.shape, rng)
        return _to_bytes(images)


def draw_conditions(rule: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 9) conditions of anomalous images: at least one cell of each is not normal."""
    kinds = len(CONDITIONS)
    if rule == "sparse":
        count = rng.integers(1, 4, size=(n, 1))
        chosen = rng.random((n, len(DIGITS))).argsort(axis=1).argsort(axis=1) < count
        return np.where(chosen, rng.integers(1, kinds, size=chosen.shape), 0)
    cells = rng.integers(0, kinds, size=(n, len(DIGITS)))
    while not (anomalous := cells.any(axis=1)).all():
        cells[~anomalous] = rng.integers(0, kinds, size=(int((~anomalous).sum()), len(DIGITS)))
    return cells


def digits_of(cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, 9) which digit each cell shows (of a missing one: would show)."""
    other = (DIGITS - 1 + rng.integers(1, len(DIGITS), size=cells.shape)) % len(DIGITS) + 1
    digits = np.where(cells == CONDITIONS.index("misordered"), other, DIGITS)
    return np.where(cells == CONDITIONS.index("novel"), 0, digits)


def split_cells(images: Tensor) -> Tensor:
    """(n, 1, h, w) -> (n, 9, 1, h / 3, w / 3), row by row."""
    return rearrange(images, "n c (i h) (j w) -> n (i j) c h w", i=GRID, j=GRID)


def join_cells(cells: Tensor) -> Tensor:
    """The inverse of `split_cells`."""
    return rearrange(cells, "n (i j) c h w -> n c (i h) (j w)", i=GRID, j=GRID)


def _share(digits: Digits, split: Split) -> Digits:
    """The instances of one split: the same share of every class."""
    starts = np.cumsum([0.0, *SHARES.values()]).round(6)
    k = list(SHARES).index(split)
    chosen = []
    for digit in range(10):
        found = np.flatnonzero(digits.classes == digit)
        first, last = (round(edge * len(found)) for edge in (starts[k], starts[k + 1]))
        # With a handful of instances rounding could leave a split without one.
        first = min(max(first, k), len(found) - len(SHARES) + k)
        last = min(max(last, k + 1), len(found) - len(SHARES) + k + 1)
        chosen.append(found[first:last])
    index = np.concatenate(chosen)
    return Digits(digits.pixels[torch.from_numpy(index)], digits.classes[index])


def _instances(bank: Digits, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random picture of each wanted digit; the bank is sorted by class."""
    starts = np.searchsorted(bank.classes, np.arange(10))
    counts = np.bincount(bank.classes, minlength=10)
    place: np.ndarray = starts[wanted] + (rng.random(wanted.shape) * counts[wanted]).astype(int)
    return place


def _jittered(pixels: Tensor, jitter: float, rng: np.random.Generator) -> Tensor:
    """Shift and scale every digit by its own draw; (n, 9, c, c) stays."""
    n, side = len(pixels), pixels.shape[-1]
    draw = torch.from_numpy(rng.uniform(-jitter, jitter, size=(n * len(DIGITS), 3))).float()
    theta = torch.zeros(len(draw), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1.0 / (1.0 + draw[:, 2])
    theta[:, :, 2] = 2.0 * draw[:, :2]  # grid_sample's image is two units wide
    grid = F.affine_grid(theta, [len(draw), 1, side, side], align_corners=False)
    flat = rearrange(pixels, "n p h w -> (n p) 1 h w")
    moved = F.grid_sample(flat, grid, align_corners=False)
    return rearrange(moved, "(n p) 1 h w -> n p h w", n=n)


def _normal(shape: torch.Size, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.standard_normal(tuple(shape), dtype=np.float32))


def _to_bytes(images: Tensor) -> Tensor:
    return (images.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)


def _findings(row: np.ndarray) -> str:
    return "|".join(CONDITIONS[kind] for kind in np.unique(row) if kind)
