"""SQUID: anomaly detection for radiographs, trained on healthy images only.

Names are imported when they are first used, so that `import squid` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from squid.version import __version__

if TYPE_CHECKING:
    from squid.calibration import Calibration
    from squid.data import DATASETS, read_image
    from squid.detector import Detector, Prediction
    from squid.errors import SquidError
    from squid.evaluation.evaluate import evaluate_run
    from squid.evaluation.metrics import evaluate
    from squid.methods import METHODS
    from squid.recipe import Recipe, read_recipe
    from squid.report import write_report
    from squid.run import Run
    from squid.training import fit, train_run

_HOMES = {
    "Calibration": "squid.calibration",
    "DATASETS": "squid.data",
    "Detector": "squid.detector",
    "METHODS": "squid.methods",
    "Prediction": "squid.detector",
    "Recipe": "squid.recipe",
    "Run": "squid.run",
    "SquidError": "squid.errors",
    "evaluate": "squid.evaluation.metrics",
    "evaluate_run": "squid.evaluation.evaluate",
    "fit": "squid.training",
    "read_image": "squid.data",
    "read_recipe": "squid.recipe",
    "train_run": "squid.training",
    "write_report": "squid.report",
}

__all__ = [
    "DATASETS",
    "METHODS",
    "Calibration",
    "Detector",
    "Prediction",
    "Recipe",
    "Run",
    "SquidError",
    "__version__",
    "evaluate",
    "evaluate_run",
    "fit",
    "read_image",
    "read_recipe",
    "train_run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'squid' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
