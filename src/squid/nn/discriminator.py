"""The discriminator of whole images (SQUID, appendix A) and its loss (sec. 3.5)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, Statistics, at_least_float32


class DiscriminatorLevel(nn.Module):
    """A 5x5 convolution that halves the map, batch normalisation (but in the first), leaky ReLU."""

    def __init__(self, inputs: int, outputs: int, normalised: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 5, stride=2, padding=2)
        self.norm = BatchNorm(outputs) if normalised else None

    def forward(self, x: Tensor, statistics: Statistics | None) -> Tensor:
        x = self.conv(x)
        x = x if self.norm is None else self.norm(x, statistics)
        return F.leaky_relu(x, 0.2)


class Discriminator(nn.Module):
    """One logit per image, higher = more real. Levels halve the image until at most 4 x 4 cells are
    left, the inputs of a linear head."""

    def __init__(self, size: int, width: int = 16) -> None:
        super().__init__()
        # Sides are rounded up as the strided convolutions do; widths stop at eight times.
        channels = [1]
        while size > 4:
            channels.append(width * min(2 ** (len(channels) - 1), 8))
            size = (size + 1) // 2
        self.levels = nn.ModuleList(
            DiscriminatorLevel(a, b, normalised=a > 1) for a, b in pairwise(channels)
        )
        self.head = nn.Linear(channels[-1] * size**2, 1)

    def forward(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        """(b, 1, h, w) -> (b, 1). With `image` statistics a logit depends on its image alone."""
        return self.classify(self.features(images, statistics))

    def features(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        """The last map, (b, c, h', w')."""
        x = images
        for level in self.levels:
            x = level(x, statistics)
        return x

    def classify(self, features: Tensor) -> Tensor:
        """The last map, (b, c, h', w') -> (b, 1)."""
        with torch.autocast(features.device.type, enabled=False):  # ranking needs the precision
            weight = self.head.weight  # (1, values)
            values = features.to(weight.dtype).reshape(-1, *weight.shape)
            return (values * weight).sum(-1) + self.head.bias


def real_or_fake(real: Tensor, fake: Tensor) -> Tensor:
    """The discriminator's loss over logits (b, 1): the cross-entropy of real images plus that of
    reconstructed ones."""
    real, fake = at_least_float32(real), at_least_float32(fake)
    # softplus(-x) is the cross-entropy of logit x with label one, softplus(x) that with label zero.
    return (F.softplus(-real) + F.softplus(fake)).mean()
