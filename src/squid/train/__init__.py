"""Training: one loop that knows no method."""

from squid.train.engine import Engine
from squid.train.loop import Diverged, Epoch, Monitor, TrainConfig, train

__all__ = ["Diverged", "Engine", "Epoch", "Monitor", "TrainConfig", "train"]
