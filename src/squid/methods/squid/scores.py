"""Scores of SQUID that compare an image with its reconstruction, as maps (b, 1, h, w)."""

from typing import NamedTuple

from torch import Tensor

from squid.methods.squid.config import MapScore
from squid.nn.patches import split
from squid.nn.ssim import disagreement
from squid.nn.uncertainty import relative_error


class Prediction(NamedTuple):
    """What the student makes of images."""

    reconstruction: Tensor
    """(b, 1, h, w) in [0, 1]."""
    log_variance: Tensor | None
    """(b, 1, h, w), with `uncertainty`."""

    def map(self, kind: MapScore, images: Tensor, *, patch: int) -> Tensor:
        """The difference from the images at each pixel; `patch` is the side of a patch."""
        if kind == "residual":
            return (images - self.reconstruction).square()
        if kind == "relative_residual":
            assert self.log_variance is not None
            return relative_error(images, self.reconstruction, self.log_variance)
        # Structure in windows of about three quarters of a patch. No reconstruction shows details
        # finer than a thirty-second of a patch; smooth them away.
        window, smooth = 3 * patch // 4 | 1, patch / 32
        return disagreement(images, self.reconstruction, window=window, smooth=smooth)


def worst_patch(maps: Tensor, grid: int) -> Tensor:
    """(b, 1, h, w) -> (b,): the highest of the patches' means."""
    by_position = split(maps, grid).mean((1, 2, 3)).view(-1, grid**2)  # (b, p)
    return by_position.amax(1)
