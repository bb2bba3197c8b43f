"""Tensors in files: finite, and in half the bytes where that loses nothing."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from squid.durable import replacing
from squid.errors import RunError
from squid.nn.conv import at_least_float32


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with replacing(path) as partial:
        save_file({key: _narrowed(t) for key, t in tensors.items()}, partial)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, none of which holds a number that is none; at least in float32."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError):
        raise RunError(f"{path} is damaged; restore it or train again.") from None
    for name, values in tensors.items():
        if not torch.isfinite(values).all():
            raise RunError(f"{path} is damaged: '{name}' holds values that are not finite.")
    return {name: at_least_float32(values) for name, values in tensors.items()}


def _narrowed(values: Tensor) -> Tensor:
    """In half the bytes where that loses nothing: features of a bf16 training are such."""
    if values.dtype != torch.float32:
        return values
    half = values.to(torch.bfloat16)
    return half if torch.equal(half.float(), values) else values
