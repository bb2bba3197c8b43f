"""Random numbers that a block or a method needs for each batch, declared before they are drawn."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NoiseSpec:
    """Random numbers for a batch. The first axis runs over images (or their patches), so ranks can
    share it."""

    shape: tuple[int, ...]
    kind: Literal["bernoulli", "normal", "uniform"]
    probability: float = 0.5
    """The chance of a one, for `bernoulli`."""
