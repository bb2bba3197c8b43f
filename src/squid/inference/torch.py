"""Scoring by torch. On a GPU, batches of common sizes are replayed as CUDA graphs."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from squid.config import Precision
from squid.data.pixels import to_unit
from squid.methods.base import Method

T = TypeVar("T")
Score = Callable[[Tensor], Tensor]
"""(b, 1, h, w) uint8 on the device -> (b,)."""

BATCH_SIZE = {"cuda": 256, "cpu": 16}
REPLAY_AFTER = 8
"""Batches of one size after which more are expected, so that capturing a graph pays."""


class TorchBackend:
    """The method itself, in eval mode on its device."""

    def __init__(
        self,
        method: Method,
        size: int,
        device: torch.device,
        *,
        precision: Precision = "float32",
        compile: bool = False,
    ) -> None:
        self._method, self._size, self._device = method, size, device
        self._precision = precision
        self._batch_size = BATCH_SIZE[device.type]
        self._optimised = torch.compile(self._score, dynamic=False) if compile else self._score
        self._seen: Counter[int] = Counter()
        self._replays: dict[int, Replay] = {}

    def prepare(self, images: int) -> None:
        """Capture the graph of full batches now if so many of them will come."""
        if images // self._batch_size > REPLAY_AFTER:
            shape = self._batch_size, 1, self._size, self._size
            self._capture(torch.zeros(shape, dtype=torch.uint8))

    def score(self, pixels: Tensor) -> Tensor:
        """(b, 1, h, w) uint8 -> (b,), perhaps still on the device."""
        b = len(pixels)
        # The remainder of a list has a size of its own: compiling or capturing it does not pay.
        if b not in (1, self._batch_size):
            return self._run(self._score, to_device(pixels, self._device))
        self._seen[b] += 1
        if self._seen[b] > REPLAY_AFTER:
            self._capture(pixels)
        if b in self._replays:
            return self._replays[b](pixels)
        return self._run(self._optimised, to_device(pixels, self._device))

    def _capture(self, example: Tensor) -> None:
        """Replay batches of this size from now on. Hundreds of small launches would compete with
        the threads that decode files; a graph is a single launch."""
        b = len(example)
        if b in self._replays or self._device.type == "cpu" or self._method.fits_images:
            return
        example = to_device(example, self._device)
        self._replays[b] = Replay(partial(self._run, self._optimised), example)

    def _run(self, score: Score, pixels: Tensor) -> Tensor:
        with torch.no_grad(), self._autocast():
            return score(pixels)

    def _score(self, pixels: Tensor) -> Tensor:
        return self._method.score(self._method.prepare(to_unit(pixels)))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)


class Replay:
    """The scoring of one batch shape as a CUDA graph."""

    def __init__(self, score: Score, example: Tensor) -> None:
        self._pixels = example.clone()
        self._lock = Lock()
        self._graph, self._scores = capture(partial(score, self._pixels))

    def __call__(self, pixels: Tensor) -> Tensor:
        if not pixels.is_cuda:
            pixels = pixels.pin_memory()
        # All replays share the input and output tensors, so only one caller may use them at a time.
        with self._lock:
            self._pixels.copy_(pixels, non_blocking=True)
            self._graph.replay()
            return self._scores.clone()  # the next replay overwrites them


def capture(call: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """The work of a call as a CUDA graph, and what every replay of it writes to."""
    # The first call initialises libraries and caches, which must not become part of the graph.
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = call()
    return graph, result


def to_device(pixels: Tensor, device: torch.device) -> Tensor:
    """Through pinned memory to a GPU, so that the copy overlaps what the GPU computes."""
    if device.type == "cuda" and not pixels.is_cuda:
        pixels = pixels.pin_memory()
    return pixels.to(device, non_blocking=True)
