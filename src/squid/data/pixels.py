"""Stored bytes as the images that methods see."""

from torch import Tensor


def to_unit(pixels: Tensor) -> Tensor:
    """Gray values from 0 to 255, uint8 or float, -> float32 in [0, 1]."""
    return pixels.float() / 255.0
