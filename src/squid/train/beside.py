"""A function computed at the same time as what follows it: on a GPU, on a stream of its own."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from squid.methods.base import Batch, Shared


class Beside:
    """`start` it, do other things, then `join` what it returned."""

    def __init__(self, function: Callable[[Batch, Shared], Shared], device: torch.device) -> None:
        self._function = function
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]

    def start(self, batch: Batch, shared: Shared) -> Shared:
        if self._stream is None:
            return self._function(batch, shared)
        self._stream.wait_stream(torch.cuda.current_stream())
        _keep_for(self._stream, shared)
        with torch.cuda.stream(self._stream):
            return self._function(batch, shared)

    def join(self, found: Shared) -> Shared:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            _keep_for(torch.cuda.current_stream(), found)
        return found


def _keep_for(stream: torch.cuda.Stream, shared: Shared) -> None:
    """Memory that two streams use is given back when both are done with it."""
    for leaf in tree_leaves(shared):
        if isinstance(leaf, Tensor):
            leaf.record_stream(stream)
