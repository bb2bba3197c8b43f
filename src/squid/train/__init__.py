"""Training: one loop that knows no method."""

from squid.train.engine import Engine
from squid.train.interrupts import Interrupted
from squid.train.loop import Epoch, Monitor, TrainConfig, check_batches, train

__all__ = ["Engine", "Epoch", "Interrupted", "Monitor", "TrainConfig", "check_batches", "train"]
