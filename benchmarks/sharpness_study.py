"""Do scores follow how sharp an image is? A study of `reread.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from kept_scores import Array, Study, TestScores, read_scores
from numpy.typing import NDArray
from PIL import Image, ImageOps
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr

from squid.data.image_set import ANOMALOUS, NORMAL, Splits
from squid.data.pixels import to_unit
from squid.errors import DataError
from squid.evaluation.metrics import auc
from squid.evaluation.trivial import ACQUISITION, CONTENT, minus_sharpness
from squid.recipe import read_recipe

Bytes = NDArray[np.uint8]
Pixels = NDArray[np.float32]


def study_sharpness(paths: Sequence[Path], recipe: Path) -> Study:
    """Do scores follow how sharp an image is, and what does preprocessing change?"""
    found = [read_scores(path) for path in paths]
    setting = read_recipe(recipe)
    splits = setting.data.load(setting.method.size)
    if {one.fingerprint for one in found} != {splits.fingerprint}:
        raise DataError(f"The results are not all of the split of {recipe}; name theirs.")
    pixels = unchanged(splits.test.pixels.flatten(1).numpy())
    blur = minus_sharpness(pixels, pixels)
    followed = {f"{one.row}, seed {one.seed}": correlations(one, blur) for one in found}
    aucs = trivial_aucs(splits)
    lines = []
    for name, selections in followed.items():
        for selection, groups in selections.items():
            values = ", ".join(f"{group} {value:5.2f}" for group, value in groups.items())
            lines.append(f"{name:24s} {selection:13s} {values}")
    for change, by_score in aucs.items():
        values = ", ".join(f"{name} {value:.1f}" for name, value in by_score.items())
        lines.append(f"{change:24s} {values}")
    content = {"correlation with minus sharpness": followed, "validation AUC": aucs}
    return Study(f"sharpness-{found[0].section}", lines, content)


def correlations(test: TestScores, blur: Array) -> dict[str, dict[str, float]]:
    """Rank correlation of scores with `blur` over all, healthy and anomalous images."""
    groups = {
        "all": np.ones(len(test.labels), dtype=bool),
        "healthy": test.labels == NORMAL,
        "anomalous": test.labels == ANOMALOUS,
    }
    return {
        name: {
            group: float(spearmanr(scores[where], blur[where]).statistic)
            for group, where in groups.items()
        }
        for name, scores in test.scores.items()
    }


def trivial_aucs(splits: Splits) -> dict[str, dict[str, float]]:
    """AUC in percent of each trivial score on the labelled validation images, by the change made
    to all images beforehand."""
    found = {}
    for name, change in CHANGES.items():
        known, new = (
            np.stack([change(one).ravel() for one in images.pixels[:, 0].numpy()])  # (n, d)
            for images in (splits.train.normals, splits.validation)
        )
        found[name] = {
            trivial: 100 * auc(score(known, new), splits.validation.labels)
            for trivial, score in (ACQUISITION | CONTENT).items()
        }
    return found


def unchanged(image: Bytes) -> Pixels:
    return to_unit(torch.from_numpy(image)).numpy()


def standardised(image: Bytes) -> Pixels:
    pixels = unchanged(image)
    return np.asarray((pixels - pixels.mean()) / pixels.std())


def equalised(image: Bytes) -> Pixels:
    return unchanged(np.array(ImageOps.equalize(Image.fromarray(image))))


def shrunk(image: Bytes) -> Pixels:
    return unchanged(np.array(Image.fromarray(image).resize((64, 64), Image.Resampling.BICUBIC)))


CHANGES: dict[str, Callable[[Bytes], Pixels]] = {
    "as they are": unchanged,
    "histograms equalised": equalised,
    "each standardised": standardised,
    "64 pixels": shrunk,
    "blurred, sigma 2": lambda image: gaussian_filter(unchanged(image), 2),
}
"""How preprocessing changes one image, (h, w)."""
