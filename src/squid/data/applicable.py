"""Images for which no score means anything."""

import numpy as np
import PIL.Image
from torch import Tensor

MIN_SIDE = 16
"""Pixels; what is smaller shows no anatomy."""


def not_applicable(image: PIL.Image.Image | np.ndarray | Tensor) -> str:
    """Why an image, gray (h, w) or (1, h, w), has no score; '' where it has.

    Asked at the image's own size: resizing hides how small it was.
    """
    width, height = image.size if isinstance(image, PIL.Image.Image) else image.shape[:-3:-1]
    if min(width, height) < MIN_SIDE:
        return f"not applicable: {width} x {height} pixels, fewer than {MIN_SIDE} a side"
    least, largest = (
        image.getextrema()
        if isinstance(image, PIL.Image.Image)
        else (image.min().item(), image.max().item())
    )
    return "not applicable: all pixels have one gray value" if least == largest else ""
