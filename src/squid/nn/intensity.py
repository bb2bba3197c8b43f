"""Intensities as a few classes: k-means over gray levels, nearest class, majority of neighbours."""

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

LEVELS = 256


def intensity_centres(images: Iterable[Tensor], classes: int) -> Tensor:
    """(classes,) ascending k-means centres of all pixels, in [0, 1].

    A histogram of gray levels stands for the pixels. With fewer levels than classes the highest
    centre repeats, and those classes stay empty.
    """
    counts = sum(torch.histc(batch.float(), LEVELS, 0, 1).double() for batch in images)
    weights = torch.as_tensor(counts).cpu().numpy()
    used = np.flatnonzero(weights)
    levels = (used[:, None] + 0.5) / LEVELS
    means = KMeans(min(classes, len(used)), n_init=10, random_state=0)
    found = np.sort(means.fit(levels, sample_weight=weights[used]).cluster_centers_[:, 0])
    padded = np.pad(found, (0, classes - len(found)), mode="edge")
    return torch.from_numpy(padded).float()


def quantise(images: Tensor, centres: Tensor) -> Tensor:
    """(b, 1, h, w) -> (b, h, w) class of each pixel: the nearest centre, then the most frequent of
    the pixel and its neighbours above and to the left."""
    nearest = (images.squeeze(1)[..., None] - centres).abs().argmin(-1)  # (b, h, w)
    classes = torch.arange(len(centres), device=images.device)[:, None, None]
    votes = (nearest[:, None] == classes).float()  # (b, k, h, w)
    return F.avg_pool2d(F.pad(votes, (1, 0, 1, 0), mode="replicate"), 2, stride=1).argmax(1)
