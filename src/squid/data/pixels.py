"""Stored bytes as the images that methods see."""

import torch
from torch import Tensor


def to_unit(pixels: Tensor) -> Tensor:
    """Gray values from 0 to 255, uint8 or float, -> float32 in [0, 1]."""
    return pixels.float() / 255.0


def add_noise(pixels: Tensor, std: float, seed: int = 0) -> Tensor:
    """uint8 images with Gaussian noise of this standard deviation on pixels in [0, 1]."""
    normal = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
    return (pixels + 255 * std * normal).round().clamp(0, 255).to(torch.uint8)
