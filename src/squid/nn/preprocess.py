"""Preprocessing that removes how an image was taken: exposure, contrast, sharpness.

All of it works on each image alone, on images (b, 1, h, w) in [0, 1], and returns such images.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Preprocess = Literal["equalise", "standardise", "flatten_spectrum", "min_max"]

LEVELS = 256
DEVIATIONS = 3.0
"""Standard deviations from the mean that fill the range after standardising."""


def preprocess(images: Tensor, steps: Sequence[Preprocess]) -> Tensor:
    """The steps in the order given."""
    for step in steps:
        images = STEPS[step](images)
    return images


def equalise(images: Tensor) -> Tensor:
    """Each pixel becomes its rank within the image (the mean rank of equal ones), so that every
    image has the same, uniform histogram."""
    level = (images.flatten(1) * (LEVELS - 1)).round().long()  # (b, n)
    counts = images.new_zeros(images.shape[0], LEVELS)  # len() would fix it in ONNX
    counts = counts.scatter_add(1, level, torch.ones_like(level, dtype=counts.dtype))
    # Half of a level's own count: the mean rank of its pixels.
    ranks = (counts.cumsum(1) - counts / 2) / level.shape[1]  # (b, levels)
    return ranks.gather(1, level).view_as(images)


def standardise(images: Tensor) -> Tensor:
    """Mean 1/2 and a spread of a sixth of the range, so that brightness and contrast are gone."""
    spread, mean = torch.std_mean(images, (1, 2, 3), correction=0, keepdim=True)
    standard = (images - mean) / spread.clamp_min(1e-6)
    return (0.5 + standard / (2 * DEVIATIONS)).clamp(0, 1)


def min_max(images: Tensor) -> Tensor:
    """From 0 to 1, as loaders of other fields do with each image."""
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return (images - low) / (high - low).clamp_min(1e-6)


def flatten_spectrum(images: Tensor) -> Tensor:
    """The mean amplitude at every radial frequency becomes one over the frequency, as natural
    images have on average, so that all images are equally sharp; phases stay."""
    spectrum = torch.fft.rfft2(images.float())  # (b, 1, h, w/2+1)
    height, width = images.shape[-2:]
    # Whole radial frequencies: every coefficient belongs to the ring of its rounded radius.
    down = torch.fft.fftfreq(height, 1 / height, device=images.device)[:, None]
    right = torch.fft.rfftfreq(width, 1 / width, device=images.device)
    radius = (down**2 + right**2).sqrt().round().long()  # (h, w/2+1)
    amplitude = spectrum.abs().flatten(1)  # (b, h * (w/2+1))
    ring = radius.flatten().expand_as(amplitude)
    rings = int(height // 2 + width // 2 + 1)
    # The mean of each ring, for the whole batch in one call each.
    total = amplitude.new_zeros(images.shape[0], rings).scatter_add(1, ring, amplitude)
    count = amplitude.new_zeros(images.shape[0], rings).scatter_add(
        1, ring, torch.ones_like(amplitude)
    )
    mean = (total / count.clamp_min(1)).gather(1, ring).view_as(spectrum.real)
    # The ring of frequency zero is the mean, which `standardise` sets afterwards.
    wanted = 1 / radius.clamp_min(1).to(mean.dtype)
    flat = torch.fft.irfft2(spectrum * (wanted / mean.clamp_min(1e-6)), s=(height, width))
    return standardise(flat.to(images.dtype))


STEPS: dict[Preprocess, Callable[[Tensor], Tensor]] = {
    "equalise": equalise,
    "standardise": standardise,
    "flatten_spectrum": flatten_spectrum,
    "min_max": min_max,
}
