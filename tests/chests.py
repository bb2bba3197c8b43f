"""Made chest X-rays, in which lungs can be found."""

import torch
from torch import Tensor


def chests(b: int, side: int = 32) -> Tensor:
    """(b, 1, side, side): a bright body with two dark lungs, and noise."""
    across = torch.linspace(-1, 1, side)
    down = across[:, None]
    lungs = sum(
        torch.exp(-((((across - x) / 0.2) ** 2 + (down / 0.4) ** 2) ** 2)) for x in (-0.4, 0.4)
    )
    noise = torch.rand(b, 1, side, side, generator=torch.Generator().manual_seed(2))
    return 0.8 - 0.5 * lungs + 0.05 * noise
