"""Several kinds of values on one scale: each in units of its spread over the training images."""

import torch
from torch import Tensor, nn

from squid.nn.conv import at_least_float32


class Standardiser(nn.Module):
    """Mean and standard deviation of each of `count` kinds of values."""

    mean: Tensor
    spread: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("spread", torch.ones(count))

    def fit(self, kind: int, values: Tensor) -> None:
        """Measure one kind on values of any shape."""
        spread, mean = torch.std_mean(at_least_float32(values), correction=0)
        self.mean[kind] = mean
        # Values that are all equal have no spread to divide by.
        self.spread[kind] = torch.where(spread > 0, spread, 1.0)

    def forward(self, values: Tensor) -> Tensor:
        """(b, count) -> (b, count), mean 0 and standard deviation 1 over the training images."""
        return (values - self.mean) / self.spread
