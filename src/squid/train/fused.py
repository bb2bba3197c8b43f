"""torch.compile as every compiled step uses it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """Small kernels that do not wait for each other become one: a third of a step is such."""
    return torch.compile(function, dynamic=False, options={"combo_kernels": True})
