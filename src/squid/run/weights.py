"""Tensors in files: finite, and in half the bytes where that loses nothing."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from squid.durable import replacing
from squid.errors import RunError
from squid.nn.conv import at_least_float32

STORED = (torch.float32, torch.bfloat16, torch.int64)
"""The types of a method's parameters and buffers, as they are stored."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with replacing(path) as partial:
        try:
            save_file({key: _narrowed(t) for key, t in tensors.items()}, partial)
        except SafetensorError as error:  # its own for a disk that is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, none of which holds a number that is none; at least in float32."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError):
        raise RunError(f"{path} is damaged; restore it or train again.") from None
    for name, values in tensors.items():
        if values.dtype not in STORED:
            kind = str(values.dtype).removeprefix("torch.")
            raise RunError(f"{path} holds {kind} for '{name}', which no method has; train again.")
        if not torch.isfinite(values).all():
            raise RunError(f"{path} is damaged: '{name}' holds values that are not finite.")
    return {name: at_least_float32(values) for name, values in tensors.items()}


def _narrowed(values: Tensor) -> Tensor:
    """In half the bytes where that loses nothing: features of a bf16 training are such."""
    if values.dtype != torch.float32:
        return values
    half = values.to(torch.bfloat16)
    return half if torch.equal(half.float(), values) else values
