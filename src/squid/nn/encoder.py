"""Encoders of patches (SQUID, sec. 3.1): any network that halves the map from level to level."""

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, ResidualBlock, conv3x3


class Encoder(Protocol):
    """Features of a patch at each scale."""

    channels: tuple[int, ...]
    """Channels of each level, whose map is the patch halved 0, 1, 2 ... times; the last level is
    the bottleneck."""

    def __call__(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(b, 1, h, w) -> the bottleneck, and the maps of the levels above it, largest first."""
        ...


class ResidualEncoder(nn.Module):
    """The authors' encoder: residual blocks whose first convolution has stride two."""

    def __init__(self, width: int, depth: int, *, bias: bool = True) -> None:
        super().__init__()
        self.channels = tuple(width * 2**level for level in range(depth + 1))
        self.enter = ResidualBlock(1, width, bias=bias)
        pairs = zip(self.channels, self.channels[1:], strict=False)
        self.levels = nn.ModuleList(ResidualBlock(a, b, 2, bias=bias) for a, b in pairs)

    def forward(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.enter(patches)
        skips = []
        for level in self.levels:
            skips.append(x)
            x = level(x)
        return x, skips


class PooledEncoder(nn.Module):
    """The encoder of the paper's table: one convolution and a max-pooling per level, with a
    bottleneck half as wide as the authors'."""

    def __init__(self, width: int, depth: int, *, bias: bool = True) -> None:
        super().__init__()
        self.channels = (width, *(width * 2**level for level in range(depth)))
        # A pooled map is as wide as the map before it, so the first width stands twice.
        inputs = (1, *self.channels[1:-1])
        self.levels = nn.ModuleList(
            nn.Sequential(conv3x3(a, b, bias=bias), BatchNorm(b), nn.ReLU())
            for a, b in zip(inputs, self.channels[1:], strict=True)
        )

    def forward(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.levels[0](patches)
        skips = [x]
        x = F.max_pool2d(x, 2)
        for level in self.levels[1:]:
            skips.append(x)
            x = F.max_pool2d(level(x), 2)
        return x, skips
