"""Gaussian smoothing of maps."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def gaussian_blur(maps: Tensor, sigma: float) -> Tensor:
    """(b, h, w) -> (b, h, w), with a Gaussian of `sigma` pixels; the border mirrors."""
    # Three deviations hold 99.7 % of the mass, and a border mirrors at most one pixel less
    # than a side.
    radius = min(math.ceil(3 * sigma), *(side - 1 for side in maps.shape[-2:]))
    # Two passes with a one-dimensional kernel: a Gaussian is separable.
    steps = torch.arange(-radius, radius + 1, device=maps.device, dtype=maps.dtype)
    kernel = torch.softmax(-(steps**2) / (2 * sigma**2), 0)
    padded = F.pad(maps[:, None], (radius,) * 4, mode="reflect")  # (b, 1, h + 2r, w + 2r)
    with torch.autocast(maps.device.type, enabled=False):  # in the precision of the maps
        columns = F.conv2d(padded, kernel.view(1, 1, -1, 1))
        return F.conv2d(columns, kernel.view(1, 1, 1, -1))[:, 0]
