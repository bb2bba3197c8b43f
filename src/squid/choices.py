"""What may be chosen where several files, and the command line, offer the same choice."""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
StepForm = Literal["auto", "eager", "captured", "compiled", "graphed"]
"""How a training step runs (`train/step.py`)."""
EngineName = Literal["auto", "torch", "onnx"]
"""What computes scores (`scoring.py`)."""
Rule = Literal["normals", "paper"]
"""Where a threshold comes from: held-out healthy images, or the best accuracy on the evaluated
set."""
Protocol = Literal["last", "paper", "snapshots"]
"""What speaks: the end of training, or which snapshots (`protocols.py`)."""
