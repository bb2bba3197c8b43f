"""Functions computed at the same time as what follows them: on a GPU, on streams of their own."""

from collections.abc import Callable
from functools import cache
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

P = ParamSpec("P")
T = TypeVar("T")


class Beside(Generic[P, T]):
    """`start` it, do other things, then `join` what it returned."""

    def __init__(self, function: Callable[P, T], device: torch.device, number: int = 0) -> None:
        """Functions of different `number` are computed at the same time as one another."""
        self._function, self._number = function, number
        # A compiler finds for itself what can be done at once.
        self._alone = device.type != "cuda" or torch.compiler.is_compiling()

    def start(self, *given: P.args, **named: P.kwargs) -> T:
        if self._alone:
            return self._function(*given, **named)
        stream = self._stream()
        stream.wait_stream(torch.cuda.current_stream())
        _keep_for(stream, (given, named))
        with torch.cuda.stream(stream):
            return self._function(*given, **named)

    def join(self, found: T) -> T:
        if not self._alone:
            torch.cuda.current_stream().wait_stream(self._stream())
            _keep_for(torch.cuda.current_stream(), found)
        return found

    def _stream(self) -> torch.cuda.Stream:
        return _stream_beside(torch.cuda.current_stream(), self._number)


@cache
def _stream_beside(stream: torch.cuda.Stream, number: int) -> torch.cuda.Stream:
    """Its own for each, since one that is being captured is not to meet the work of another."""
    return torch.cuda.Stream(stream.device)  # type: ignore[no-untyped-call]


def _keep_for(stream: torch.cuda.Stream, tree: object) -> None:
    """Memory that two streams use is given back when both are done with it."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            leaf.record_stream(stream)
