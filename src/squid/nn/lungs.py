"""Where the lungs are: the dark areas of the mean of healthy chest X-rays.

Chest X-rays are taken alike, so the mean of many shows both lungs. No label and no segmentation
network is needed. AnatPaste (Sato et al., iScience 2023, arXiv:2205.04282) finds the lungs of each
image by thresholds; a mean is steadier, since an opacity does not hide a lung in it.
"""

import logging
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import label
from torch import Tensor, nn

from squid.nn.blur import gaussian_blur
from squid.nn.preprocess import equalise

Region = Literal["image", "lungs"]
"""What counts for a score: the whole image, or the lungs."""

SURROUNDINGS = 8 / 64
"""Width of the Gaussian, as a share of the side, whose mean a lung is darker than."""
DARKER = 0.05
"""By how much, as a share of the gray levels."""
LEAST_AREA = 0.024
"""Share of the image that a lung covers at the least: other dark areas are smaller."""
SOFT = 4 / 64
"""Width of the Gaussian, as a share of the side, that softens the border of the lungs."""

_log = logging.getLogger(__name__)


class Lungs(nn.Module):
    """The weight of each pixel: the lungs count, what lies beside them fades out. Weights sum to
    one. Until lungs are found, all pixels weigh the same."""

    weight: Tensor  # (side, side)

    def __init__(self, side: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((side, side), 1.0 / side**2))

    def fit(self, images: Iterable[Tensor]) -> None:
        """From batches (b, 1, h, w) of healthy images."""
        total, count = torch.zeros_like(self.weight, dtype=torch.float64), 0
        for batch in images:
            total += equalise(batch.float()).double().sum((0, 1))
            count += len(batch)
        mean = (total / count).float()
        darker = gaussian_blur(mean[None], SURROUNDINGS * len(mean))[0] - mean
        lungs = find_lungs((darker > DARKER).cpu().numpy())
        if lungs is None:
            _log.warning(
                "The mean of the training images shows no lungs, so the whole image counts; leave "
                "out region = 'lungs' where the images are no frontal chest X-rays."
            )
            return
        soft = torch.from_numpy(lungs).to(self.weight)[None]
        weight = gaussian_blur(soft, SOFT * len(mean))[0]
        self.weight.copy_(weight / weight.sum())

    def places(self, draws: Tensor) -> Tensor:
        """(..., 2) uniform draws -> (..., 2) x and y from 0 to 1, as dense as the weights."""
        side = self.weight.shape[-1]
        reached = self.weight.flatten().cumsum(0)
        wanted = (draws[..., 0] * reached[-1]).contiguous()
        pixel = torch.searchsorted(reached, wanted).clamp_max(side * side - 1)
        # The second draw is the place within the pixel, in the one direction that needs it.
        x, y = (pixel % side + draws[..., 1]) / side, (pixel // side + 0.5) / side
        return torch.stack((x, y), -1)

    def mean(self, maps: Tensor) -> Tensor:
        """(b, h, w) -> (b,): the weighted mean."""
        return (maps * self.weight).sum((1, 2))

    def shade(self, maps: Tensor) -> Tensor:
        """(b, h, w) -> (b, h, w): maps of positive values fade to zero outside the lungs."""
        return maps * (self.weight / self.weight.max())

    @property
    def found(self) -> bool:
        """Whether some were found, so that not all pixels weigh the same."""
        return bool(self.weight.max() > self.weight.min())


def what_counts(network: nn.Module) -> str:
    """What the scores of a network look at, for people; '' where nobody asked for the lungs."""
    lungs = [module for module in network.modules() if isinstance(module, Lungs)]
    if not lungs:
        return ""
    if all(one.found for one in lungs):
        return "the lungs, where the mean training image shows them; nothing beside them is found"
    return "the whole image, as the mean training image shows no lungs"


def find_lungs(dark: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """The large areas that touch no border; None unless there are some on both sides."""
    areas, count = label(dark)
    lungs = np.zeros_like(dark)
    for number in range(1, count + 1):
        area = areas == number
        border = np.concatenate([area[0], area[-1], area[:, 0], area[:, -1]])
        if area.mean() >= LEAST_AREA and not border.any():
            lungs |= area
    middle = dark.shape[1] // 2
    both = lungs[:, :middle].any() and lungs[:, middle:].any()
    return lungs if both else None
