"""Concurrent functions: on a GPU each runs on a CUDA stream of its own."""

from collections.abc import Callable
from functools import cache
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

P = ParamSpec("P")
T = TypeVar("T")


class Concurrent(Generic[P, T]):
    """`start` it, do other work, then `join` what it returned."""

    def __init__(self, function: Callable[P, T], device: torch.device, number: int = 0) -> None:
        """Functions of different `number` run on different streams."""
        self._function, self._number = function, number
        # Compiled code needs no streams: the compiler orders the work itself.
        self._inline = device.type != "cuda" or torch.compiler.is_compiling()

    def start(self, *given: P.args, **named: P.kwargs) -> T:
        if self._inline:
            return self._function(*given, **named)
        stream = self._stream()
        # The side stream may start only when what the function is given has been computed.
        stream.wait_stream(torch.cuda.current_stream())
        _record_use(stream, (given, named))
        with torch.cuda.stream(stream):
            return self._function(*given, **named)

    def join(self, found: T) -> T:
        if not self._inline:
            torch.cuda.current_stream().wait_stream(self._stream())
            _record_use(torch.cuda.current_stream(), found)
        return found

    def _stream(self) -> torch.cuda.Stream:
        return _side_stream(torch.cuda.current_stream(), self._number)


@cache
def _side_stream(stream: torch.cuda.Stream, number: int) -> torch.cuda.Stream:
    """One side stream per stream, so that work recorded in a CUDA graph does not mix with other
    work."""
    return torch.cuda.Stream(stream.device)  # type: ignore[no-untyped-call]


def _record_use(stream: torch.cuda.Stream, tree: object) -> None:
    """Makes the allocator wait for every stream that uses the tensors before it reuses their
    memory."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            leaf.record_stream(stream)
