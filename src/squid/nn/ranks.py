"""What a block needs of the other processes of a distributed training.

`nn` knows no process group: a block that mixes images of a batch (batch normalisation, the memory
queue) asks its `ranks`, and `train/step.py` puts the real ones in. Alone, every question answers
itself.
"""

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """The processes that train together."""

    alone: bool
    """Whether there is only this one."""
    size: int
    """How many there are."""

    def mean(self, x: Tensor) -> Tensor:
        """Mean over ranks; gradients flow to every rank."""
        ...

    def gather(self, x: Tensor) -> Tensor:
        """Rows of all ranks, in rank order; no gradient."""
        ...


class _Alone:
    alone = True
    size = 1

    def mean(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor) -> Tensor:
        return x


ALONE: Ranks = _Alone()
