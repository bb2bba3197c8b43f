"""The backends that score: torch on either device, ONNX Runtime on the CPU."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from squid.config import Backend, Device, Precision
from squid.errors import ConfigError
from squid.inference.onnx import OnnxScorer, can_export, export_onnx, exportable
from squid.methods.base import Method
from squid.run import Run
from squid.train.engine import pick_device

T = TypeVar("T")
Score = Callable[[Tensor], Tensor]
"""(b, 1, h, w) uint8 -> (b,), perhaps still on the device."""

BATCH_SIZE = {"cuda": 256, "cpu": 16}
SEEN_OFTEN = 8
"""Batches of a shape after which more of it are expected."""


def to_unit(pixels: Tensor) -> Tensor:
    """Bytes as the images that methods see, in [0, 1]."""
    return pixels.float() / 255.0


def scoring_device(device: Device | torch.device, backend: Backend) -> torch.device:
    """ONNX Runtime is used on the CPU only."""
    if backend != "onnx":
        return pick_device(device)
    if device == "cuda":
        raise ConfigError("Backend onnx scores on the CPU; use --device cpu or --backend torch.")
    return torch.device("cpu")


class TorchScorer:
    """The method itself. On a GPU single images and full batches, once they have come often, are
    replayed as one launch: hundreds of small ones would compete with the threads that decode."""

    def __init__(
        self, method: Method, device: torch.device, *, precision: Precision, compile: bool
    ) -> None:
        self._method, self._device, self._precision = method, device, precision
        self._often = torch.compile(self._score, dynamic=False) if compile else self._score
        self._seen: Counter[int] = Counter()
        self._replays: dict[int, Replay] = {}

    def __call__(self, pixels: Tensor) -> Tensor:
        b = len(pixels)
        if b not in (1, BATCH_SIZE[self._device.type]):  # a remainder is not worth preparing for
            return self._run(self._score, to_device(pixels, self._device))
        self._seen[b] += 1
        if self._seen[b] > SEEN_OFTEN:
            self.prepare(pixels)
        if b in self._replays:
            return self._replays[b](pixels)
        return self._run(self._often, to_device(pixels, self._device))

    def prepare(self, example: Tensor) -> None:
        """For many batches like the `example` (b, 1, h, w) uint8."""
        b = len(example)
        if b in self._replays or self._device.type == "cpu" or self._method.fits_images:
            return
        example = to_device(example, self._device)
        self._replays[b] = Replay(partial(self._run, self._often), example)

    def _run(self, score: Score, pixels: Tensor) -> Tensor:
        with torch.no_grad(), self._autocast():
            return score(pixels)

    def _score(self, pixels: Tensor) -> Tensor:
        return self._method.score(to_unit(pixels))

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
        with self._lock:
            self._pixels.copy_(pixels, non_blocking=True)
            self._graph.replay()
            return self._scores.clone()  # the next replay writes over it


def capture(call: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """The work of a call as a CUDA graph, and what every replay of it writes to."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()  # what is set up on a first use is not to be captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = call()
    return graph, result


def to_device(pixels: Tensor, device: torch.device) -> Tensor:
    """To a GPU by way of pinned memory, so that the copy overlaps what the GPU computes."""
    if device.type == "cuda" and not pixels.is_cuda:
        pixels = pixels.pin_memory()
    return pixels.to(device, non_blocking=True)


class Scoring:
    """Picks the backend for the images at hand."""

    def __init__(
        self,
        method: Method,
        size: int,
        device: torch.device,
        *,
        backend: Backend = "auto",
        precision: Precision = "float32",
        compile: bool = False,
        run: Run | None = None,
    ) -> None:
        self._method, self._size, self._device, self._run = method, size, device, run
        self._torch = TorchScorer(method, device, precision=precision, compile=compile)
        self._onnx: Score | None = None
        self._backend: Backend = backend
        if backend == "onnx" and (run is None or precision == "bf16"):
            remedy = "save the detector first" if run is None else "leave --precision out"
            raise ConfigError(f"Backend onnx needs a run folder and float32; {remedy}.")
        if backend == "auto" and not self._may_use_onnx(device, precision, compile):
            self._backend = "torch"

    def prepare(self, images: int) -> None:
        """For so many images, before threads that decode them are in the way."""
        batch = BATCH_SIZE[self._device.type]
        if images // batch > SEEN_OFTEN and not self._wants_onnx():
            pixels = torch.zeros(batch, 1, self._size, self._size, dtype=torch.uint8)
            self._torch.prepare(pixels)

    def _may_use_onnx(self, device: torch.device, precision: Precision, compile: bool) -> bool:
        plain = device.type == "cpu" and precision == "float32" and not compile
        return plain and self._run is not None and can_export() and exportable(self._method)

    def backend(self, example: Tensor) -> Score:
        """For images like the `example` (b, 1, h, w) uint8, on which a new ONNX file is checked.

        `auto` takes an ONNX file that is there and writes none: where it pays depends on the CPU.
        """
        if self._onnx is None and self._wants_onnx():
            self._onnx = self._open_onnx(example)
        return self._onnx or self._torch

    def _wants_onnx(self) -> bool:
        there = self._run is not None and self._run.onnx is not None
        return self._backend == "onnx" or (self._backend == "auto" and there)

    def _open_onnx(self, example: Tensor) -> Score:
        assert self._run is not None
        if self._run.onnx is None:
            path = self._run.path_of_onnx
            export_onnx(self._method, path, size=self._size, images=to_unit(example))
        scorer = OnnxScorer(self._run.path_of_onnx)
        return lambda pixels: scorer.score(to_unit(pixels))
