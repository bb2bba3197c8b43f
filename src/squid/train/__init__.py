"""Training: one loop that knows no method."""

from squid.train.engine import Engine
from squid.train.interrupts import Interrupted
from squid.train.loop import TrainConfig, check_batches, train
from squid.train.monitor import Epoch, Monitor, State

__all__ = [
    "Engine",
    "Epoch",
    "Interrupted",
    "Monitor",
    "State",
    "TrainConfig",
    "check_batches",
    "train",
]
