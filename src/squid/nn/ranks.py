"""The collective operations that a block needs in a distributed training.

`nn` knows no process group. A block that mixes images of a batch (batch normalisation, the memory
queue) calls its `ranks`; `train/step.py` sets the real ones, and with one process they change
nothing.
"""

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """The processes that train together."""

    alone: bool
    """Whether there is only this process."""
    size: int
    """Number of processes."""

    def mean(self, x: Tensor) -> Tensor:
        """The mean over ranks; gradients flow to every rank."""
        ...

    def gather(self, x: Tensor) -> Tensor:
        """The rows of all ranks, in rank order; no gradient."""
        ...


class _Alone:
    alone = True
    size = 1

    def mean(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor) -> Tensor:
        return x


ALONE: Ranks = _Alone()
