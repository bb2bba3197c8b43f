"""Trivial scores for every table: a method that they match has learned little.

Acquisition scores see only how an image was taken (view, exposure, sharpness); the others compare
pixels with healthy training images. Each is fitted on healthy training images alone.
"""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from squid.calibration.facts import sharpness
from squid.data.image_set import ImageSet, Splits

Array = NDArray[np.float64]
Pixels = NDArray[np.float32]
Score = Callable[[Pixels, Pixels], Array]
"""Training and test images (n, d) in [0, 1] -> (n,), higher = more anomalous."""

COMPONENTS = 32
NEIGHBOURS = 2


def mean_intensity(train: Pixels, test: Pixels) -> Array:
    return _scores(test.mean(1))


def minus_deviation(train: Pixels, test: Pixels) -> Array:
    """Pneumonia whitens the lungs, which takes contrast away."""
    return _scores(-test.std(1))


def minus_sharpness(train: Pixels, test: Pixels) -> Array:
    return _scores(-sharpness(_square(test)))


def minus_high_frequencies(train: Pixels, test: Pixels) -> Array:
    """Mean log power of the upper half of all frequencies: what blur and compression remove."""
    profile = _radial_log_power(test)  # (n, r)
    return _scores(-profile[:, profile.shape[1] // 2 :].mean(1))


def spectrum_distance(train: Pixels, test: Pixels) -> Array:
    """Mahalanobis distance of the radial power spectrum to those of training images."""
    known, asked = _radial_log_power(train), _radial_log_power(test)
    return _scores(LedoitWolf().fit(known).mahalanobis(asked) ** 0.5)


def pca_residual(train: Pixels, test: Pixels) -> Array:
    """Mean squared error of the projection onto the leading components of the training images."""
    components = min(COMPONENTS, len(train) - 1, train.shape[1])
    # A fixed random state: every benchmark of the same data has the same trivial scores.
    pca = PCA(components, svd_solver="randomized", random_state=0).fit(train)
    return _scores(((test - pca.inverse_transform(pca.transform(test))) ** 2).mean(1))


def pixel_neighbours(train: Pixels, test: Pixels) -> Array:
    """Mean distance to the nearest training images."""
    neighbours = min(NEIGHBOURS, len(train))
    nearest = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(train)
    return _scores(nearest.kneighbors(test)[0].mean(1))


ACQUISITION: dict[str, Score] = {
    "mean intensity": mean_intensity,
    "minus standard deviation": minus_deviation,
    "minus sharpness": minus_sharpness,
    "minus high frequencies": minus_high_frequencies,
    "spectrum distance": spectrum_distance,
}
CONTENT: dict[str, Score] = {
    f"PCA-{COMPONENTS} residual": pca_residual,
    "pixel kNN": pixel_neighbours,
}
RARE_VIEW = "rare view"
"""Only where the dataset knows the view."""


def acquisition_scores(splits: Splits) -> dict[str, Array]:
    """(n,) scores of the test images that only see how an image was taken."""
    healthy, test = splits.train.normals, splits.test
    train, asked = _flat(healthy), _flat(test)
    found = {name: score(train, asked) for name, score in ACQUISITION.items()}
    views = rare_view(healthy, test)
    return found if views is None else {RARE_VIEW: views, **found}


def image_sharpness(images: ImageSet) -> Array:
    """(n,) of each image."""
    return sharpness(_square(_flat(images)))


def trivial_scores(splits: Splits) -> dict[str, Array]:
    """(n,) scores of the test images by each trivial score."""
    train, test = _flat(splits.train.normals), _flat(splits.test)
    content = {name: score(train, test) for name, score in CONTENT.items()}
    return acquisition_scores(splits) | content


def rare_view(train: ImageSet, test: ImageSet) -> Array | None:
    """Minus the log of a view's share among training images; None where all views are the same."""
    known, asked = train.columns.get("view"), test.columns.get("view")
    if known is None or asked is None or len(set(asked)) < 2:
        return None
    # One is added to each count, so that a view never seen in training has a finite score.
    counts = Counter(known)
    total = len(known) + len(set(known) | set(asked))
    return np.array([-math.log((counts[view] + 1) / total) for view in asked])


def _radial_log_power(pixels: Pixels) -> Array:
    """(n, d) -> (n, r): log of the mean power at each radial frequency up to Nyquist."""
    images = _square(pixels).astype(np.float64)
    side = images.shape[1]
    power = np.abs(np.fft.rfft2(images - images.mean((1, 2), keepdims=True))) ** 2
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)) * side
    ring = np.rint(frequency).astype(int).ravel()
    # Corners beyond Nyquist have no full ring, and ring zero is the mean brightness.
    kept = (ring > 0) & (ring <= side // 2)
    sums = np.stack([np.bincount(ring[kept], one.ravel()[kept])[1:] for one in power])
    return np.asarray(np.log(sums / np.bincount(ring[kept])[1:] + 1e-12))


def _square(pixels: Pixels) -> Pixels:
    side = math.isqrt(pixels.shape[1])  # images are square
    return pixels.reshape(-1, side, side)


def _flat(images: ImageSet) -> Pixels:
    """(n, d) in [0, 1]."""
    return np.asarray(images.pixels.flatten(1).numpy() / np.float32(255))


def _scores(values: Pixels | Array) -> Array:
    return np.asarray(values, dtype=np.float64)
