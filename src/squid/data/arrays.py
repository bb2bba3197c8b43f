"""Images that come as NumPy arrays in an npz file."""

import zipfile
from pathlib import Path

import numpy as np

from squid.errors import DataError

LUMA = np.array([0.299, 0.587, 0.114])
"""Gray of red, green and blue (ITU-R 601), as Pillow weighs them."""


def read_arrays(path: Path, *needed: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file, among them those that are needed; never a pickled object."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable npz file ({error}).") from None
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise DataError(f"{path} holds no array '{missing[0]}', only {', '.join(arrays)}.")
    return arrays


def to_gray(images: np.ndarray) -> np.ndarray:
    """(n, h, w) or (n, h, w, 1 or 3) uint8 -> (n, h, w) uint8."""
    if images.dtype != np.uint8 or not (images.ndim == 3 or images.shape[3:] in ((1,), (3,))):
        raise DataError(
            f"Images must be uint8 of shape (n, h, w) or (n, h, w, 3), "
            f"not {images.dtype} of {images.shape}."
        )
    if images.ndim == 3:
        return images
    if images.shape[-1] == 1:
        return images[..., 0]
    gray: np.ndarray = np.round(images @ LUMA).astype(np.uint8)
    return gray
