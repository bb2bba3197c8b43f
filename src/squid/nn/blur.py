"""Gaussian smoothing of maps."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from squid.nn.conv import at_least_float32


def gaussian_blur(maps: Tensor, sigma: float) -> Tensor:
    """(b, h, w) -> (b, h, w), at least float32, with a Gaussian of `sigma` pixels; the border
    mirrors."""
    # Three deviations hold 99.7 % of the mass, and a border mirrors at most one pixel less
    # than a side.
    radius = min(math.ceil(3 * sigma), *(side - 1 for side in maps.shape[-2:]))
    with torch.autocast(maps.device.type, enabled=False):
        wide = at_least_float32(maps)
        # Two passes with a one-dimensional kernel: a Gaussian is separable.
        steps = torch.arange(-radius, radius + 1, device=wide.device, dtype=wide.dtype)
        kernel = torch.softmax(-(steps**2) / (2 * sigma**2), 0)
        padded = F.pad(wide[:, None], (radius,) * 4, mode="reflect")  # (b, 1, h + 2r, w + 2r)
        columns = F.conv2d(padded, kernel.view(1, 1, -1, 1))
        return F.conv2d(columns, kernel.view(1, 1, 1, -1))[:, 0]
