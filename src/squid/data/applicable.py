"""Images for which no score means anything."""

import numpy as np
import PIL.Image
from torch import Tensor

MIN_SIDE = 16
"""Pixels; what is smaller shows no anatomy."""
FLAT = "all pixels have one gray value"
"""Also a reason for which a dataset leaves an image out."""


def not_applicable(image: PIL.Image.Image | np.ndarray | Tensor) -> str:
    """Why an image, gray (h, w) or (1, h, w), has no score; '' where it has.

    Asked at the image's own size: resizing hides how small it was.
    """
    width, height = image.size if isinstance(image, PIL.Image.Image) else image.shape[:-3:-1]
    if small := _too_small(width, height):
        return small
    least, largest = (
        image.getextrema()
        if isinstance(image, PIL.Image.Image)
        else (image.min().item(), image.max().item())
    )
    return f"not applicable: {FLAT}" if least == largest else ""


def reasons_of(images: Tensor) -> tuple[str, ...]:
    """(n,) why each of (n, 1, h, w) has no score; '' where it has."""
    if small := _too_small(*images.shape[:-3:-1]):
        return (small,) * len(images)
    return tuple(f"not applicable: {FLAT}" if flat else "" for flat in are_flat(images).tolist())


def are_flat(images: Tensor) -> Tensor:
    """(n,) which of (n, 1, h, w) have one gray value."""
    pixels = images.flatten(1)
    return pixels.amin(1) == pixels.amax(1)


def _too_small(width: int, height: int) -> str:
    if min(width, height) >= MIN_SIDE:
        return ""
    return f"not applicable: {width} x {height} pixels, fewer than {MIN_SIDE} a side"
