"""Scoring by torch. On a GPU, many batches are replayed as a CUDA graph."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from squid.config import Precision
from squid.data.pixels import to_unit
from squid.inference.batches import BATCH_SIZE, score_in_batches, score_together
from squid.methods.base import Method

T = TypeVar("T")
Score = Callable[[Tensor], Tensor]
"""(b, 1, h, w) uint8 on the device -> (b,)."""

REPLAY_AFTER = 8
"""Batches after which more are expected, so that capturing a graph pays."""


class TorchBackend:
    """The method itself, in eval mode on its device."""

    name = "torch"

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
        self._seen = 0
        self._replay: Replay | None = None

    def prepare(self, images: int) -> None:
        """Capture the graph of a batch now if so many will come."""
        if images // self._batch_size > REPLAY_AFTER:
            shape = self._batch_size, 1, self._size, self._size
            self._capture(torch.zeros(shape, dtype=torch.uint8))

    def score(self, pixels: Tensor) -> Tensor:
        """(b, 1, h, w) uint8 -> (b,), perhaps still on the device."""
        if self._method.scored_together is not None:
            return score_together(self._run_batch, pixels, self._method.scored_together)
        return score_in_batches(self._score_batch, pixels, self._batch_size)

    def _score_batch(self, pixels: Tensor) -> Tensor:
        self._seen += 1
        if self._seen > REPLAY_AFTER:
            self._capture(pixels)
        if self._replay is not None:
            return self._replay(pixels)
        return self._run_batch(pixels)

    def _run_batch(self, pixels: Tensor) -> Tensor:
        return self._run(self._optimised, to_device(pixels, self._device))

    def _capture(self, example: Tensor) -> None:
        """Replay batches from now on. Hundreds of small launches would compete with the threads
        that decode files; a graph is a single launch."""
        usable = not self._method.fits_images and self._method.scored_together is None
        if self._replay is None and self._device.type != "cpu" and usable:
            example = to_device(example, self._device)
            self._replay = Replay(partial(self._run, self._optimised), example)

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
