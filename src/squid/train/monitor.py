"""What a training reports while it runs, and to whom: the run folder, a progress bar."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from squid.methods.base import Method

Weights = dict[str, Any]
"""A `state_dict` of a method or an optimiser."""


class State(TypedDict):
    """Everything a training needs to go on."""

    stage: int
    epoch: int
    step: int
    """Steps of the epoch that are done; 0 between epochs."""
    totals: dict[str, float]
    """Sums of losses over those steps."""
    method: Weights
    optimizers: list[Weights]


@dataclass(frozen=True)
class Epoch:
    """Losses, rates and speed of one epoch, or of the part of it so far."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    losses: Mapping[str, float]
    rates: Mapping[str, float]
    seconds: float
    images_per_second: float


class Monitor:
    """Receives what happens in a training; every method does nothing unless overridden."""

    def progress(self, now: Epoch) -> None:
        """About once a second."""

    def epoch(self, done: Epoch) -> None:
        """At the end of each epoch."""

    def snapshot(self, epoch: int, method: Method) -> None:
        """Every `snapshot_every` epochs, with the method (of an ensemble, the member in training),
        ready to score."""

    def save(self, state: State) -> None:
        """A state from which training can go on; only ever one with finite losses."""
