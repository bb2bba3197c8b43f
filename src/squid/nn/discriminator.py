"""The discriminator of whole images (SQUID, appendix A)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, Statistics


class DiscriminatorLevel(nn.Module):
    """A 5x5 convolution that halves the map, normalised (but for the first), leaky."""

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
    left."""

    def __init__(self, size: int, width: int = 16) -> None:
        super().__init__()
        channels = [1]
        while size > 4:
            channels.append(width * min(2 ** (len(channels) - 1), 8))
            size = (size + 1) // 2
        pairs = pairwise(channels)
        self.levels = nn.ModuleList(
            DiscriminatorLevel(a, b, normalised=i > 0) for i, (a, b) in enumerate(pairs)
        )
        self.head = nn.Linear(channels[-1] * size**2, 1)

    def forward(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        """(b, 1, h, w) -> (b,). With `image` statistics a logit does not depend on the other
        images."""
        features = self.features(images, statistics).flatten(1)
        with torch.autocast(images.device.type, enabled=False):  # scores are ranked by it
            logits: Tensor = self.head(features.to(self.head.weight.dtype))
        return logits.squeeze(-1)

    def features(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        """The last map, (b, c, h', w')."""
        x = images
        for level in self.levels:
            x = level(x, statistics)
        return x
