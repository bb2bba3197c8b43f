"""The public names: exact, sorted, and imported only when they are used."""

import subprocess
import sys

import squid
from squid import version

NAMES = {
    "Calibration",
    "DATASETS",
    "Detector",
    "METHODS",
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
}


def group(name):
    """Constants, classes, then the rest, as ruff sorts them."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_the_list_is_exact_and_sorted():
    assert set(squid.__all__) == NAMES
    assert squid.__all__ == sorted(squid.__all__, key=group)
    assert dir(squid) == sorted(NAMES)


def test_every_name_is_there():
    assert all(getattr(squid, name) is not None for name in squid.__all__)
    assert squid.__version__ == version.__version__


def test_an_unknown_name_is_no_attribute():
    assert not hasattr(squid, "Detectr")


def loaded_by(statement):
    command = [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_squid_imports_neither_torch_nor_matplotlib():
    assert not {"torch", "matplotlib", "squid.detector"} & loaded_by("import squid")
