"""What a training was made with."""

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from squid.config import Config
from squid.data.image_set import Splits
from squid.recipe import Recipe
from squid.version import __version__


class SplitSize(Config):
    """Images of a split."""

    normal: int
    anomalous: int


class Environment(Config):
    """What it takes to repeat a training, besides its recipe."""

    version: str
    commit: str | None
    python: str
    torch: str
    device: str
    seed: int
    data: str
    """Fingerprint of all images and labels."""
    splits: Mapping[str, SplitSize]


def describe_environment(recipe: Recipe, splits: Splits, device: torch.device) -> Environment:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return Environment(
        version=__version__,
        commit=commit(),
        python=platform.python_version(),
        torch=torch.__version__,
        device=gpu or f"{platform.machine()} CPU",
        seed=recipe.seed,
        data=splits.fingerprint,
        splits={
            row.split: SplitSize(normal=row.normal, anomalous=row.anomalous)
            for row in splits.table()
        },
    )


def commit() -> str | None:
    """The commit of the checkout this package lies in; None for an installed one. Where git is
    absent, the environment variable `SQUID_COMMIT` names it."""
    if "SQUID_COMMIT" in os.environ:
        return os.environ["SQUID_COMMIT"]
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
