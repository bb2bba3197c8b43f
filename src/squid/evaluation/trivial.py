"""Trivial scores for every table: a method that they match has learned little."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from squid.data.image_set import ImageSet, Splits

Array = NDArray[np.float64]
Pixels = NDArray[np.float32]

COMPONENTS = 32
NEIGHBOURS = 2


def mean_intensity(train: Pixels, test: Pixels) -> Array:
    return _scores(test.mean(1))


def minus_deviation(train: Pixels, test: Pixels) -> Array:
    """Pneumonia whitens the lungs, which takes contrast away."""
    return _scores(-test.std(1))


def minus_sharpness(train: Pixels, test: Pixels) -> Array:
    """Mean squared difference of neighbouring pixels: a blurred image has little."""
    side = math.isqrt(test.shape[1])  # images are square
    images = test.reshape(-1, side, side)
    return _scores(-sum((np.diff(images, axis=axis) ** 2).mean((1, 2)) for axis in (1, 2)))


def pca_residual(train: Pixels, test: Pixels) -> Array:
    """Mean squared error of the projection onto the leading components of the training images."""
    components = min(COMPONENTS, len(train) - 1, train.shape[1])
    pca = PCA(components, svd_solver="randomized", random_state=0).fit(train)
    return _scores(((test - pca.inverse_transform(pca.transform(test))) ** 2).mean(1))


def pixel_neighbours(train: Pixels, test: Pixels) -> Array:
    """Mean distance to the nearest training images."""
    neighbours = min(NEIGHBOURS, len(train))
    nearest = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(train)
    return _scores(nearest.kneighbors(test)[0].mean(1))


TRIVIAL: dict[str, Callable[[Pixels, Pixels], Array]] = {
    "mean intensity": mean_intensity,
    "minus standard deviation": minus_deviation,
    "minus sharpness": minus_sharpness,
    f"PCA-{COMPONENTS} residual": pca_residual,
    "pixel kNN": pixel_neighbours,
}


def trivial_scores(splits: Splits) -> dict[str, Array]:
    """(n,) scores of the test images by each trivial score, fitted on healthy training images."""
    train, test = _flat(splits.train.normals), _flat(splits.test)
    return {name: score(train, test) for name, score in TRIVIAL.items()}


def _flat(images: ImageSet) -> Pixels:
    """(n, d) in [0, 1]."""
    return np.asarray(images.pixels.flatten(1).numpy() / np.float32(255))


def _scores(values: Pixels) -> Array:
    return np.asarray(values, dtype=np.float64)
