"""The strided networks of DCGAN (Radford et al., ICLR 2016), in the form that Ganomaly uses."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, Statistics
from squid.nn.pyramid import count_halvings, doubling_widths, smallest_side

LEAK = 0.2
SPREAD = 0.02
"""Standard deviation of initial weights."""


class DcganEncoder(nn.Module):
    """Images (b, 1, h, w) -> codes (b, d): halved to 4 x 4 or 3 x 3, twice as wide each time."""

    def __init__(self, size: int, width: int, code: int) -> None:
        super().__init__()
        channels = (1, *doubling_widths(width, count_halvings(size)))
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 4, 2, 1, bias=False) for a, b in pairwise(channels)
        )
        # As in DCGAN, the layer that sees the image is not normalised.
        self.norms = nn.ModuleList(BatchNorm(c) for c in channels[2:])
        self.leave = nn.Conv2d(channels[-1], code, smallest_side(size), bias=False)
        initialise(self)

    def forward(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        code: Tensor = self.leave(self.features(images, statistics))
        return code.flatten(1)

    def features(self, images: Tensor, statistics: Statistics | None = None) -> Tensor:
        """The last map, (b, c, 4, 4) or (b, c, 3, 3)."""
        x = F.leaky_relu(self.convs[0](images), LEAK)
        for conv, norm in zip(self.convs[1:], self.norms, strict=True):
            x = F.leaky_relu(norm(conv(x), statistics), LEAK)
        return x


class DcganDecoder(nn.Module):
    """Codes (b, d) -> images (b, 1, h, w) in [-1, 1]: the encoder's mirror."""

    def __init__(self, size: int, width: int, code: int) -> None:
        super().__init__()
        channels = doubling_widths(width, count_halvings(size))[::-1]
        self.enter = nn.ConvTranspose2d(code, channels[0], smallest_side(size), bias=False)
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False) for a, b in pairwise(channels)
        )
        self.norms = nn.ModuleList(BatchNorm(c) for c in channels)
        self.leave = nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False)
        initialise(self)

    def forward(self, code: Tensor, statistics: Statistics | None = None) -> Tensor:
        x = code[:, :, None, None]
        for conv, norm in zip((self.enter, *self.convs), self.norms, strict=True):
            x = F.relu(norm(conv(x), statistics))
        return torch.tanh(self.leave(x))


@torch.no_grad()
def initialise(network: nn.Module, generator: torch.Generator | None = None) -> None:
    """Sets convolutions from N(0, 0.02) and normalisations from N(1, 0.02) without shift."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            _set_normal(module.weight, 0.0, generator)
        elif isinstance(module, BatchNorm):
            _set_normal(module.weight, 1.0, generator)
            module.bias.zero_()


def _set_normal(weight: Tensor, mean: float, generator: torch.Generator | None) -> None:
    """Normal numbers from the CPU, so that every device starts from the same ones."""
    weight.copy_(torch.empty(weight.shape).normal_(mean, SPREAD, generator=generator))
