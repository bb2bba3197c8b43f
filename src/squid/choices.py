"""What may be chosen where several files, and the command line, offer the same choice."""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
Backend = Literal["auto", "torch", "onnx"]
"""What computes scores (`scoring.py`)."""
ThresholdKind = Literal["healthy", "best_accuracy"]
"""How a threshold is set: on held-out healthy images, or for the best accuracy on the evaluated
set, as in the paper."""
Selection = Literal["final", "best_epoch", "snapshot_mean"]
"""Which weights give the scores: those at the end of training, those of the epoch that labelled
validation images choose (the paper), or the mean over all snapshots."""
