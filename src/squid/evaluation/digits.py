"""DigitAnatomy measured: what a method finds, where it finds it, and what it reconstructs there.

Healthy images show the digits 1 to 9 in order, so the digit that belongs in a cell is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC
from torch import Tensor
from torch.nn import functional as F

from squid.config import Config
from squid.data.digitanatomy import CONDITIONS, DIGITS, GRID, split_cells
from squid.data.image_set import ImageSet, Splits
from squid.errors import DataError
from squid.evaluation.metrics import GroupAuc, auc, per_group_auc
from squid.heatmaps import heatmap, kinds
from squid.methods.base import Method

TRUSTED = 0.97
"""Share of clean held-out cells that a reader must read right to be trusted."""
_LEGIBLE = 28  # pixels of a cell's side, as the reader sees it
_EXAMPLES = 12_000  # cells that a reader is trained on, at most
_FAINT = 0.2  # of a digit's usual contrast: less is no digit, whatever its edges resemble

Mask = NDArray[np.bool_]


class Restoration(Config):
    """What a method reconstructs: shares of cells, None where there is no such cell."""

    anomalous: float | None
    """Anomalous cells reconstructed as the digit that belongs there."""
    untouched: float | None
    """The same share of cells that were right already."""
    blank: float | None
    """The same share of the nine cells of a blank image, the paper's extreme case."""
    faithfulness: float | None
    """Untouched cells reconstructed nearer to themselves than to a rival (see `faithfulness`)."""


class DigitMeasures(Config):
    """What `measure_digits` found, in [0, 1]."""

    noise: float
    """Standard deviation of the Gaussian noise added to the images."""
    kinds: dict[str, GroupAuc]
    """Images that hold each kind of anomaly, others with it perhaps, against all normal ones."""
    kinds_alone: dict[str, GroupAuc]
    """Images that hold this kind and no other, which is harder."""
    localisation: dict[str, float]
    """For each kind of heatmap (see `localisation`)."""
    restoration: Restoration | None
    """None for a method that reconstructs nothing."""
    reader_accuracy: float
    """Accuracy of the classifier that read the cells, on clean cells that it was not trained on."""
    trusted: bool
    """Whether that is enough to believe what it read in the reconstructions."""


@dataclass(frozen=True)
class Reader:
    """Tells in which cell a digit belongs; of what has the contrast of a digit it always names one,
    so that 1 in 9 is chance."""

    classifier: SVC
    faintest: float
    """Standard deviation of pixels below which a cell counts as empty."""

    def right(self, images: Tensor) -> Mask:
        """(n, 1, h, w) -> (n, 9): whether each cell shows the digit that belongs there."""
        places = self.classifier.predict(_strokes(images)).reshape(len(images), len(DIGITS))
        return np.asarray((places == np.arange(len(DIGITS))) & (_contrast(images) > self.faintest))

    def accuracy(self, images: ImageSet) -> float:
        """Share of the untouched cells that it reads right."""
        return float(self.right(_unit(images))[_untouched(images)].mean())


def train_reader(images: ImageSet, seed: int = 0) -> Reader:
    """A reader trained on healthy images; `Reader.accuracy` measures it on others."""
    # In a healthy image the place of a cell is its digit, so the labels cost nothing.
    healthy = _unit(images.normals)
    examples = _strokes(healthy)
    chosen = np.random.default_rng(seed).permutation(len(examples))[:_EXAMPLES]
    classifier = SVC(C=10.0).fit(examples[chosen], chosen % len(DIGITS))
    return Reader(classifier, _FAINT * float(np.median(_contrast(healthy))))


def measure_digits(
    method: Method,
    splits: Splits,
    *,
    noise: float = 0.0,
    device: torch.device | str = "cpu",
    batch_size: int = 64,
    seed: int = 0,
    reader: Reader | None = None,
) -> DigitMeasures:
    """All measures of the test images, which get Gaussian noise of standard deviation `noise`.

    The reader is trained here unless one is given, as several calls on the same splits should.
    """
    test, untouched = splits.test, _untouched(splits.test)
    reader = reader or train_reader(splits.train, seed)
    accuracy = reader.accuracy(test)
    apply = partial(_apply, prepare=method.prepare, device=device, batch_size=batch_size)
    images = _noisy(_unit(test), noise, seed)
    findings = test.findings or ("",) * len(test)
    # An image with several kinds of anomalies is in none of the groups of a single kind.
    alone = ["" if "|" in finding else finding for finding in findings]
    scores = apply(method.score, images).numpy()
    grouped = partial(per_group_auc, scores, test.labels, minimum=1, seed=seed)
    heat = {kind: apply(partial(heatmap, method, kind=kind), images) for kind in kinds(method)}
    # Only a method with a residual heatmap reconstructs images.
    reconstruct = partial(apply, method.reconstruct)
    restored = (
        _restored(reconstruct, test, reader, noise=noise, seed=seed) if "residual" in heat else None
    )
    return DigitMeasures(
        noise=noise,
        kinds=grouped(findings),
        kinds_alone=grouped(alone),
        localisation={kind: localisation(maps, untouched) for kind, maps in heat.items()},
        restoration=restored,
        reader_accuracy=accuracy,
        trusted=accuracy >= TRUSTED,
    )


def localisation(heatmaps: Tensor, untouched: Mask) -> float:
    """AUC of the mean heat of anomalous cells against that of all other cells of all images."""
    heat = F.adaptive_avg_pool2d(heatmaps[:, None], GRID).flatten()  # (n * 9,)
    return auc(heat.numpy(), ~untouched.ravel())


def faithfulness(
    clean: Tensor, reconstructed: Tensor, untouched: Mask, *, seed: int = 0
) -> float | None:
    """Share of untouched cells reconstructed strictly nearer (L2) to themselves than to a rival.

    The rival is the same cell, so the same digit, of another image chosen at random among those in
    which it is untouched too; both are taken without noise. One constant picture gets about a
    half. Identical cells are no rivals and are left out.
    """
    originals, cells = (split_cells(x).flatten(2) for x in (clean, reconstructed))  # (n, 9, d)
    rng = np.random.default_rng(seed)
    nearer = []
    for place in range(len(DIGITS)):
        # A roll of the random order pairs each image with another one and none with itself.
        order = torch.from_numpy(rng.permutation(np.flatnonzero(untouched[:, place])))
        own, rival = originals[order, place], originals[order.roll(1), place]
        cell = cells[order, place]
        closer = (cell - own).norm(dim=1) < (cell - rival).norm(dim=1)
        # A cell that equals its rival can be nearer to neither.
        nearer.append(closer[(own != rival).any(1)].numpy())
    return _share(np.concatenate(nearer))


def _restored(
    reconstruct: Callable[[Tensor], Tensor],
    test: ImageSet,
    reader: Reader,
    *,
    noise: float,
    seed: int,
) -> Restoration:
    clean, untouched = _unit(test), _untouched(test)
    # The same seed as for the scores: restoration is measured on the images that were scored.
    reconstructed = reconstruct(_noisy(clean, noise, seed))
    blank = reconstruct(_noisy(torch.zeros_like(clean[:1]), noise, seed))
    right = reader.right(reconstructed)
    return Restoration(
        anomalous=_share(right[~untouched]),
        untouched=_share(right[untouched]),
        blank=_share(reader.right(blank)),
        faithfulness=faithfulness(clean, reconstructed, untouched, seed=seed),
    )


def _contrast(images: Tensor) -> NDArray[np.float32]:
    return np.asarray(split_cells(images).flatten(2).std(2, correction=0).numpy())  # (n, 9)


def _strokes(images: Tensor) -> NDArray[np.float32]:
    """The reader's features of each cell, (n, 1, h, w) -> (n * 9, d).

    Edges by direction, of a straightened cell and whatever their contrast: plain pixels of MNIST
    are read too badly (0.95 of clean cells, against 0.98), and blurred ones worse still.
    """
    cells = split_cells(images).flatten(0, 1)  # (n * 9, 1, h', w')
    cells = _straightened(F.interpolate(cells, (_LEGIBLE, _LEGIBLE), mode="bilinear"))
    # The gradient by central differences, then its part along each of eight directions.
    across = cells[..., 1:-1, 2:] - cells[..., 1:-1, :-2]
    down = cells[..., 2:, 1:-1] - cells[..., :-2, 1:-1]
    angles = torch.arange(8) * (torch.pi / 4)
    along = across * angles.cos().view(-1, 1, 1) + down * angles.sin().view(-1, 1, 1)
    # Squares over the length: a gradient counts by its length, shared by the directions near it.
    length = (across**2 + down**2).sqrt().clamp_min(1e-6)
    edges = F.adaptive_avg_pool2d(F.relu(along) ** 2 / length, _LEGIBLE // 4)  # (n * 9, 8, 7, 7)
    return np.asarray(F.normalize(edges.flatten(1), dim=1).numpy())


def _straightened(cells: Tensor) -> Tensor:
    """Digits (n, 1, s, s) moved to their centre of mass, and their slant taken out."""
    side = cells.shape[-1]
    # Coordinates of pixel centres from -1 to 1, as `affine_grid` has them.
    axis = (torch.arange(side) + 0.5) * 2 / side - 1
    mass = cells[:, 0] + 1e-6  # a blank cell stays where it is
    mass = mass / mass.sum((1, 2), keepdim=True)
    x, y = mass.sum(1) @ axis, mass.sum(2) @ axis
    # The slant is the shear that takes the covariance of rows and columns to zero.
    right, down = axis - x[:, None], axis - y[:, None]  # (n, s)
    shear = torch.einsum("nij,ni,nj->n", mass, down, right)
    slant = (shear / torch.einsum("nij,ni->n", mass, down**2)).clamp(-1, 1)
    # From the straightened digit back to the given one, as `grid_sample` needs it.
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    affine = torch.stack([one, slant, x, zero, one, y], 1).view(-1, 2, 3)
    grid = F.affine_grid(affine, list(cells.shape), align_corners=False)
    return F.grid_sample(cells, grid, align_corners=False)


def _apply(
    function: Callable[[Tensor], Tensor],
    images: Tensor,
    *,
    prepare: Callable[[Tensor], Tensor],
    device: torch.device | str,
    batch_size: int,
) -> Tensor:
    # Images stay on the CPU and go to the device batch by batch, whatever the size of the test set.
    starts = range(0, len(images), batch_size)
    with torch.no_grad():
        parts = (prepare(images[i : i + batch_size].to(device)) for i in starts)
        answers = [function(part).float().cpu() for part in parts]
    return torch.cat(answers)


def _unit(images: ImageSet) -> Tensor:
    return images.pixels.float() / 255


def _noisy(images: Tensor, std: float, seed: int) -> Tensor:
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return (images + std * noise).clamp(0, 1)


def _untouched(images: ImageSet) -> Mask:
    if images.cells is None:
        raise DataError("Only DigitAnatomy knows the condition of each cell; use such images.")
    return np.asarray(images.cells == CONDITIONS.index("normal"))


def _share(mask: Mask) -> float | None:
    return float(mask.mean()) if mask.size else None
