"""Discriminators kept from the course of a training, who judge together: one alone changes its mind
from epoch to epoch."""

import torch
from torch import Tensor, nn

from squid.nn.conv import Statistics
from squid.nn.discriminator import Discriminator


class Panel(nn.Module):
    """The last `sittings` states of a discriminator that `keep` was given.

    They are run one after the other: as groups of one wide discriminator they took a third longer
    on a CPU, and as long as all the rest of a scoring on a GPU.
    """

    kept: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, size: int, width: int, judges: int, sittings: int) -> None:
        super().__init__()
        self.discriminators = nn.ModuleList(
            Discriminator(size, width, judges) for _ in range(sittings)
        ).requires_grad_(False)
        self.register_buffer("kept", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(sittings * judges))
        self.register_buffer("spread", torch.ones(sittings * judges))

    def keep(self, discriminator: Discriminator) -> None:
        """In the place of the oldest."""
        place = int(self.kept) % len(self.discriminators)
        self.discriminators[place].load_state_dict(discriminator.state_dict())
        self.kept += 1

    def forward(self, images: Tensor, statistics: Statistics) -> Tensor:
        """(b, 1, h, w) -> (b,): how unreal the judges kept so far find an image, on average, in
        units of each one's spread over the images of `fit`."""
        logits = self.logits(images, statistics)  # (b, judges)
        place = torch.arange(len(self.mean), device=logits.device)
        judges = len(self.mean) // len(self.discriminators)
        sits = (place < self.kept * judges).to(logits.dtype)
        return -((logits - self.mean) / self.spread) @ (sits / sits.sum().clamp_min(1.0))

    def logits(self, images: Tensor, statistics: Statistics) -> Tensor:
        """(b, 1, h, w) -> (b, judges): of all who could ever sit."""
        return torch.cat([judge(images, statistics) for judge in self.discriminators], 1)

    def fit(self, logits: Tensor) -> None:
        """To the judges' logits of normal images, (n, judges)."""
        spread, mean = torch.std_mean(logits, 0, correction=0)
        self.mean.copy_(mean)
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))
