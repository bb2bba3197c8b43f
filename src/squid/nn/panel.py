"""Discriminators kept from the course of a training, who judge together: one alone changes its mind
from epoch to epoch."""

import torch
from torch import Tensor, nn

from squid.nn.conv import Statistics
from squid.nn.discriminator import Discriminator


class Panel(nn.Module):
    """The last `sittings` states of a discriminator that `keep` was given, as one with many
    judges."""

    kept: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, size: int, width: int, judges: int, sittings: int) -> None:
        super().__init__()
        self.sittings = sittings
        self.discriminator = Discriminator(size, width, judges * sittings).requires_grad_(False)
        self.register_buffer("kept", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(judges * sittings))
        self.register_buffer("spread", torch.ones(judges * sittings))

    @torch.no_grad()
    def keep(self, discriminator: Discriminator) -> None:
        """In the place of the oldest."""
        place = int(self.kept) % self.sittings
        own = self.discriminator.state_dict()
        for name, value in discriminator.state_dict().items():
            own[name].view(self.sittings, *value.shape)[place] = value
        self.kept += 1

    def forward(self, images: Tensor, statistics: Statistics) -> Tensor:
        """(b, 1, h, w) -> (b,): how unreal the judges kept so far find an image, on average, in
        units of each one's spread over the images of `fit`."""
        logits: Tensor = self.discriminator(images, statistics)  # (b, judges)
        place = torch.arange(len(self.mean), device=logits.device)
        sits = (place < self.kept * (len(place) // self.sittings)).to(logits.dtype)
        return -((logits - self.mean) / self.spread) @ (sits / sits.sum().clamp_min(1.0))

    def fit(self, logits: Tensor) -> None:
        """To the judges' logits of normal images, (n, judges)."""
        spread, mean = torch.std_mean(logits, 0, correction=0)
        self.mean.copy_(mean)
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))
