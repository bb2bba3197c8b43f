"""Images in memory, as arrays or tensors, as gray bytes of one size."""

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.gray import Gray
from squid.data.image import Resized, resized
from squid.data.levels import WORD, Levels
from squid.data.reading import AS_DECLARED, Reading
from squid.data.tables import LUMA
from squid.errors import DataError

RGB, RGBA = 3, 4
GRAY_FROM = "gray from RGB"
OPAQUE = {"uint8": 255, "uint16": 65535}
"""The alpha of an opaque pixel by type; 1 in floats."""


def resize_array(
    images: NDArray[np.generic] | Tensor,
    size: int,
    name: str,
    *,
    reading: Reading = AS_DECLARED,
) -> list[Resized]:
    """Gray (h, w), (n, h, w), (n, 1, h, w) or (n, h, w, 1), or colour (h, w, c) or (n, h, w, c)
    with c = 3 or 4 -> n images. So (3, h, w) is three gray images: colour comes last.

    Values are uint8, uint16 (with `reading.bits` significant ones, or all 16), or float in [0, 1].
    """
    stacked = _stack(_to_numpy(images))
    floats = np.issubdtype(stacked.dtype, np.floating)
    if not floats and stacked.dtype not in (np.uint8, np.uint16):
        raise DataError(
            f"Images of type {stacked.dtype} are not known; give uint8, uint16 (with bits if fewer "
            f"than 16 are used), or float in [0, 1]."
        )
    # Written so that a NaN is refused as well.
    if floats and stacked.size and not (stacked.min() >= 0 and stacked.max() <= 1):
        raise DataError("Float images must lie in [0, 1]; divide by their largest possible value.")
    try:
        return [_resize_one(image, size, reading.bits) for image in stacked]
    except DataError as error:
        raise DataError(f"{name} {error}") from None


def _to_numpy(images: NDArray[np.generic] | Tensor) -> NDArray[np.generic]:
    if not isinstance(images, Tensor):
        return images
    # NumPy has no bfloat16.
    plain = images.float() if images.dtype == torch.bfloat16 else images
    array: NDArray[np.generic] = plain.detach().cpu().numpy()
    return array


def _stack(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Any of the shapes that are taken -> (n, h, w) or (n, h, w, c)."""
    stacked = array
    if array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (1, RGB, RGBA)):
        stacked = array[None]  # a single image
    if stacked.ndim == 4 and stacked.shape[1] == 1:
        stacked = stacked[:, 0]  # (n, h, w)
    elif stacked.ndim == 4 and stacked.shape[-1] == 1:
        stacked = stacked[..., 0]  # (n, h, w)
    colour = stacked.ndim == 4 and stacked.shape[-1] in (RGB, RGBA)
    if not (stacked.ndim == 3 or colour) or 0 in stacked.shape[1:]:
        raise DataError(
            f"Images of shape {array.shape} are not understood; give gray (h, w) or (n, h, w), or "
            f"colour (h, w, 3) or (n, h, w, 3)."
        )
    return stacked


def _resize_one(image: NDArray[np.generic], size: int, bits: int | None) -> Resized:
    """One image (h, w) or (h, w, c); messages begin with a verb."""
    if image.ndim == 3 and image.shape[-1] == RGBA:
        if (image[..., 3] != OPAQUE.get(image.dtype.name, 1.0)).any():
            raise DataError("is partly transparent; give it without an alpha channel.")
        image = image[..., :3]
    if image.dtype == np.uint16:
        levels = Levels(image.reshape(len(image), -1).astype(np.uint16), bits or WORD)
        steps = (f"{levels.bits} bit scaled",)
        if image.ndim == 2:
            return resized(Gray(levels, steps), size)
        luma = _luma(levels.to_unit().reshape(image.shape))
        return resized(Gray(luma, (*steps, GRAY_FROM), (levels.small_range(),)), size)
    if image.ndim == 3 and image.dtype == np.uint8:
        # Pillow's own weights, so that an array and its file give the same pixels.
        colour = PIL.Image.fromarray(np.ascontiguousarray(image))
        return resized(Gray(colour.convert("L"), (GRAY_FROM,)), size)
    if image.ndim == 3:
        return resized(Gray(_luma(image), (GRAY_FROM,)), size)
    return resized(Gray(image), size)


def _luma(colour: NDArray[np.generic]) -> NDArray[np.float32]:
    """(h, w, 3) in [0, 1] -> (h, w)."""
    gray: NDArray[np.float32] = np.clip(colour @ LUMA, 0.0, 1.0).astype(np.float32)
    return gray
