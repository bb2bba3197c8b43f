"""The run folder that a training leaves. It is read and written here only, and nothing else is
needed to use a detector.

recipe.toml          fully resolved         model.safetensors     what scoring needs
calibration.json     healthy scores         training.safetensors  the rest (a teacher)
calibrations/        of other sites, by `calibrate`
MANIFEST.sha256      checksums of the files above and of model.onnx
metrics.json         of `evaluate`          history.csv           losses and rates per epoch
environment.json     versions, seed, data   snapshots.npz         scores at every snapshot
resume.pt            while training         report.html, figures/ of `report`
resume.before.pt     the state before it    model.onnx            of `score --backend onnx`
model-card.md        what to know of it

folder.py            all of it              manifest.py           the checksums
weights.py           tensors                states.py             what a training goes on from
history.py           tables of a training   environment.py        what it was made with
files.py             what is read at all
"""

from squid.run.environment import Environment, SplitSize, commit, describe_environment
from squid.run.folder import OWN_CALIBRATION, Run
from squid.run.manifest import UnverifiedWarning

__all__ = [
    "OWN_CALIBRATION",
    "Environment",
    "Run",
    "SplitSize",
    "UnverifiedWarning",
    "commit",
    "describe_environment",
]
