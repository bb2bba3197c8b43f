"""Where heatmaps point: their agreement with the boxes that radiologists marked.

Opacities lie in the lungs, so a map that knows no image finds some of them: the centre of the
image, or the mean of all boxes. A heatmap that does not beat these two priors shows nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from squid.config import Config
from squid.data.image_set import ANOMALOUS, Box, ImageSet, Splits
from squid.detector import Detector
from squid.evaluation.metrics import Estimate, estimate

HIGH = 0.05
"""Share of the pixels of healthy images that count as high; the overlap is taken there."""
HEALTHY_IMAGES = 256
"""Healthy validation images that give this level, which is the same for all images."""
PRIORS = ("centre", "mean box")
"""Maps that know no image; the second is of the validation images' boxes."""

Maps: TypeAlias = NDArray[np.float32]  # (n, h, w)
Mask: TypeAlias = NDArray[np.bool_]  # (n, h, w)


class Localisation(Config):
    """How well one kind of heatmap finds the boxes; each measure is the mean over images."""

    images: int
    """Anomalous images with at least one box."""
    pointing: Estimate
    """Share of images whose highest pixel lies in a box (pointing game, Zhang et al. 2018)."""
    auroc: Estimate
    """AUC of the pixels of an image: those inside boxes against those outside."""
    average_precision: Estimate
    """The same ranking, with the pixels inside boxes as what is to be found."""
    overlap: Estimate
    """Dice overlap of the boxes with the pixels that are higher than in most healthy images."""


def measure_localisation(
    detector: Detector, splits: Splits, *, seed: int = 0, resamples: int = 1000
) -> dict[str, Localisation]:
    """Every heatmap of a detector and both priors, by name; nothing where no box is known."""
    boxed = _boxed(splits.test)
    if not len(boxed):
        return {}
    side = int(boxed.pixels.shape[-1])
    inside = box_masks(boxed.boxes or (), side)
    healthy = splits.validation.normals.pixels[:HEALTHY_IMAGES]
    found = {}
    for kind in detector.heatmap_kinds:
        level = float(np.quantile(detector.explain(healthy, kind), 1 - HIGH))
        found[kind] = localisation(
            detector.explain(boxed.pixels, kind), inside, level, seed=seed, resamples=resamples
        )
    for name, prior in _priors(splits.validation, side).items():
        # A prior is the same for every image, so its own highest pixels are those of healthy ones.
        level = float(np.quantile(prior, 1 - HIGH))
        maps = np.broadcast_to(prior, inside.shape)
        found[name] = localisation(maps, inside, level, seed=seed, resamples=resamples)
    return found


def localisation(
    maps: Maps, inside: Mask, level: float, *, seed: int = 0, resamples: int = 1000
) -> Localisation:
    """Heatmaps against masks of boxes; pixels above `level` are those that a reader would see."""
    measures = {
        "pointing": pointing(maps, inside),
        "auroc": pixel_auroc(maps, inside),
        "average_precision": pixel_average_precision(maps, inside),
        "overlap": dice_overlap(maps > level, inside),
    }
    # Images are resampled, the same ones for every measure and every kind of heatmap.
    drawn = np.random.default_rng(seed).integers(len(maps), size=(resamples, len(maps)))
    return Localisation(
        images=len(maps),
        **{
            name: estimate(float(values.mean()), values[drawn].mean(1))
            for name, values in measures.items()
        },
    )


def box_masks(boxes: Sequence[Sequence[Box]], side: int) -> Mask:
    """(n, side, side): the pixels whose centre lies in one of an image's boxes.

    A box that is narrower than a pixel still marks the pixel of its centre.
    """
    masks = np.zeros((len(boxes), side, side), dtype=bool)
    for mask, marked in zip(masks, boxes, strict=True):
        for box in marked:
            mask[_range(box.y, box.height, side), _range(box.x, box.width, side)] = True
    return masks


def pointing(maps: Maps, inside: Mask) -> NDArray[np.float64]:
    """(n,) whether the highest pixel lies in a box; of several equal ones, the share that does."""
    highest = maps == maps.max((1, 2), keepdims=True)
    return np.asarray((highest & inside).sum((1, 2)) / highest.sum((1, 2)))


def pixel_auroc(maps: Maps, inside: Mask) -> NDArray[np.float64]:
    """(n,) chance that a pixel in a box is higher than one outside; ties count half."""
    ranks = rankdata(maps.reshape(len(maps), -1), axis=1)
    marked = inside.reshape(len(inside), -1)
    positives = marked.sum(1)
    negatives = marked.shape[1] - positives
    # Mann-Whitney: the rank sum of the positives, less the least that it can be.
    above = (ranks * marked).sum(1) - positives * (positives + 1) / 2
    return np.asarray(above / (positives * negatives))


def pixel_average_precision(maps: Maps, inside: Mask) -> NDArray[np.float64]:
    """(n,) average precision of each image's pixels."""
    pairs = zip(inside, maps, strict=True)
    return np.array([average_precision_score(mask.ravel(), heat.ravel()) for mask, heat in pairs])


def dice_overlap(high: Mask, inside: Mask) -> NDArray[np.float64]:
    """(n,) twice the common pixels as a share of both masks' pixels."""
    common = (high & inside).sum((1, 2))
    return np.asarray(2 * common / (high.sum((1, 2)) + inside.sum((1, 2))))


def beats_priors(found: Mapping[str, Localisation], kind: str) -> bool:
    """Whether a kind of heatmap surely hits more boxes than either prior: the lower end of its
    interval lies above what each of them hits on the same images."""
    priors = [found[name].pointing.value for name in PRIORS if name in found]
    return found[kind].pointing.low > max(priors)


def _boxed(images: ImageSet) -> ImageSet:
    """The anomalous images with a box that leaves something outside it."""
    if images.boxes is None:
        return images.select([])
    side = int(images.pixels.shape[-1])
    masks = _masks(images.boxes, side)
    partly = np.array([mask.any() and not mask.all() for mask in masks], dtype=bool)
    return images.select(partly & (images.labels == ANOMALOUS))


def _masks(boxes: Sequence[Sequence[Box]], side: int) -> Iterator[NDArray[np.bool_]]:
    """The mask of one image at a time: all masks of an archive would not fit in memory."""
    for marked in boxes:
        yield box_masks([marked], side)[0]


def _priors(validation: ImageSet, side: int) -> dict[str, NDArray[np.float32]]:
    """(side, side) each. Without boxes among the validation images there is the centre alone."""
    middle = np.linspace(-1, 1, side, dtype=np.float32)
    priors = {"centre": -np.hypot(middle[:, None], middle[None])}
    boxed = _boxed(validation)
    if len(boxed):
        mean = box_masks(boxed.boxes or (), side).mean(0, dtype=np.float32)
        priors["mean box"] = mean
    return priors


def _range(start: float, length: float, side: int) -> slice:
    """The pixels of a line whose centres lie between the two ends, at least one of them."""
    first = int(np.ceil(start * side - 0.5))
    last = int(np.ceil((start + length) * side - 0.5))
    if last <= first:
        first = int((start + length / 2) * side)
        last = first + 1
    return slice(max(first, 0), min(max(last, 0), side))
