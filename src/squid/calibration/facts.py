"""Exposure and sharpness of images: what scores may follow instead of disease."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

FACTS = ("brightness", "contrast", "sharpness")


def image_facts(pixels: Tensor) -> dict[str, Array]:
    """(n, 1, h, w) uint8 -> each fact (n,), on the scale of gray values from 0 to 1."""
    images = pixels[:, 0].numpy() / 255.0
    brightness, contrast = images.mean((1, 2)), images.std((1, 2))
    return dict(zip(FACTS, (brightness, contrast, sharpness(images)), strict=True))


def sharpness(images: NDArray[np.floating]) -> Array:
    """(n, h, w) -> (n,) mean squared difference of neighbouring pixels: a blurred image has
    little."""
    # Differences along rows and along columns; blur makes both smaller.
    return np.asarray(sum((np.diff(images, axis=axis) ** 2).mean((1, 2)) for axis in (1, 2)))
