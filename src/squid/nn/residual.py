"""Pre-activation residual networks that halve or double maps (WGAN-GP, Gulrajani et al., NIPS 2017;
f-AnoGAN; IGD)."""

from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, Statistics
from squid.nn.pyramid import doubling_widths

Norm = Literal["batch", "layer"]
"""`layer` normalises each image alone, over channels and locations, as a gradient penalty needs."""


class NormReLU(nn.Module):
    """Normalisation and ReLU."""

    def __init__(self, kind: Norm, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(channels) if kind == "batch" else nn.GroupNorm(1, channels)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """`statistics` matter to batch normalisation only."""
        # GroupNorm has no tracked statistics to choose from.
        batched = isinstance(self.norm, BatchNorm)
        x = self.norm(x, statistics) if batched else self.norm(x)
        return F.relu(x)


class ResidualDown(nn.Module):
    """(b, c, 2h, 2w) -> (b, c', h, w) by mean-pooling."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        self.enter, self.middle = NormReLU(norm, inputs), NormReLU(norm, inputs)
        self.first = he_conv(inputs, inputs, bias=False)
        self.second = he_conv(inputs, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        branch = self.first(self.enter(x, statistics))
        branch = self.second(self.middle(branch, statistics))
        # A 1x1 convolution and the mean of cells commute; on the halved map it is cheaper.
        shortcut: Tensor = self.shortcut(halve(x))
        return shortcut + halve(branch)


class ResidualUp(nn.Module):
    """(b, c, h, w) -> (b, c', 2h, 2w) by repeating cells."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        self.enter, self.middle = NormReLU(norm, inputs), NormReLU(norm, outputs)
        self.first = he_conv(inputs, outputs, bias=False)
        self.second = he_conv(outputs, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        branch = self.first(double(self.enter(x, statistics)))
        branch = self.second(self.middle(branch, statistics))
        # A 1x1 convolution and the repetition of cells commute; on the small map it is cheaper.
        doubled: Tensor = branch + double(self.shortcut(x))
        return doubled


class ResidualHalvings(nn.Module):
    """Maps (b, width, h, w) -> (b, outputs, h', w'), halved `levels` times."""

    def __init__(self, width: int, levels: int, norm: Norm) -> None:
        super().__init__()
        channels = residual_widths(width, levels)
        self.outputs = channels[-1]
        self.levels = nn.ModuleList(ResidualDown(a, b, norm) for a, b in pairwise(channels))

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        for level in self.levels:
            x = level(x, statistics)
        return x


class ResidualDoublings(nn.Module):
    """Maps (b, inputs, h', w') -> (b, width, h, w), doubled `levels` times, batch-normalised."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        channels = residual_widths(width, levels)[::-1]
        self.inputs = channels[0]
        self.levels = nn.ModuleList(ResidualUp(a, b, "batch") for a, b in pairwise(channels))
        self.leave = NormReLU("batch", width)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        for level in self.levels:
            x = level(x, statistics)
        maps: Tensor = self.leave(x, statistics)
        return maps


class CodeToMaps(nn.Module):
    """A code (b, d) -> maps (b, c, side, side)."""

    def __init__(self, code: int, channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.linear = nn.Linear(code, channels * side**2)

    def forward(self, code: Tensor) -> Tensor:
        maps: Tensor = self.linear(code)
        return rearrange(maps, "b (c h w) -> b c h w", h=self.side, w=self.side)


def residual_widths(width: int, levels: int) -> tuple[int, ...]:
    """Channels before the first level and after each; they double up to eight times as many."""
    return doubling_widths(width, levels + 1, 8 * width)


def he_conv(inputs: int, outputs: int, *, bias: bool = True) -> nn.Conv2d:
    """A 3x3 convolution that keeps the variance through a ReLU, forwards and backwards."""
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
    nn.init.xavier_uniform_(conv.weight, gain=2**0.5)
    return conv


def halve(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2)


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")
