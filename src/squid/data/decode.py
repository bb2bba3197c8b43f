"""Files decoded ahead of whoever uses them, in order, in bounded memory.

While one chunk is scored, threads decode the next ones. Decoders let go of the interpreter's lock,
so threads keep a few cores busy, and need no start-up time. Sixteen wait for each other now and
then: where a GPU scores an archive, processes decode it.
"""

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.data.image import read_resized
from squid.errors import DataError

OnError = Literal["raise", "skip"]

AHEAD = 2
"""Chunks decoded before they are asked for."""
FILES = 128
"""In a chunk of `read_many`."""
FILES_PER_TASK = 4
"""Handed to a decoder at once: each handing over holds the interpreter's lock."""
MANY = 2048
"""Files for which it pays to begin processes."""


@dataclass(frozen=True)
class Chunk:
    """Some neighbours of a long list of files."""

    pixels: Tensor
    """(n, 1, size, size) uint8."""
    places: tuple[int, ...]
    """(n,): which files these are."""
    skipped: tuple[tuple[int, str], ...]
    """Files of this chunk that could not be read, each with the reason."""


@dataclass(frozen=True)
class Reading:
    """What `read_many` made of its files."""

    pixels: Tensor
    """(n, 1, size, size) uint8."""
    kept: tuple[int, ...]
    """Places of the files that were read."""
    skipped: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""


def read_many(
    paths: Sequence[Path],
    size: int,
    *,
    on_error: OnError = "raise",
    progress: Callable[[int, int], None] | None = None,
) -> Reading:
    """All files, decoded and resized; the order is kept."""
    pixels = torch.empty(len(paths), 1, size, size, dtype=torch.uint8)
    kept: list[int] = []
    skipped: list[tuple[str, str]] = []
    for chunk in stream(paths, size, FILES, on_error=on_error):
        pixels[len(kept) : len(kept) + len(chunk.places)] = chunk.pixels
        kept += chunk.places
        skipped += [(str(paths[place]), reason) for place, reason in chunk.skipped]
        if progress is not None:
            progress(len(kept) + len(skipped), len(paths))
    return Reading(pixels[: len(kept)], tuple(kept), tuple(skipped))


def stream(
    paths: Sequence[Path],
    size: int,
    batch_size: int,
    *,
    on_error: OnError = "raise",
    beside_gpu: bool = False,
) -> Iterator[Chunk]:
    """All files in order, `batch_size` to a chunk, less those that are skipped.

    However many files there are, at most `AHEAD` chunks are held beside the one just given.
    `beside_gpu`, decoding is all that the cores have to do, and pixels are pinned to be copied.
    """
    pinned = beside_gpu and torch.cuda.is_available()
    begun: deque[_Begun] = deque()
    pool = _decoders(apart=beside_gpu and len(paths) >= MANY)
    try:
        for start in range(0, len(paths), batch_size):
            begun.append(_Begun(pool, paths[start : start + batch_size], start, size))
            if len(begun) > AHEAD:
                yield begun.popleft().finish(on_error, pinned=pinned)
        while begun:
            yield begun.popleft().finish(on_error, pinned=pinned)
    except BrokenProcessPool:
        raise DataError("A process that decoded files was killed; is there memory left?") from None
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """That this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _decoders(*, apart: bool) -> Executor:
    """Threads; `apart`, and where processes begin at once as copies of this one, processes."""
    if not apart or sys.platform != "linux":
        return ThreadPoolExecutor(cores(), thread_name_prefix="decode")
    return ProcessPoolExecutor(cores(), get_context("fork"), initializer=_begin_decoding)


def _begin_decoding() -> None:
    """In a process of its own."""
    torch.set_num_threads(1)  # a copy of a process has none of its threads
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it is interrupted, and ends it


class _Begun:
    """A chunk whose files are being decoded."""

    def __init__(self, pool: Executor, paths: Sequence[Path], start: int, size: int) -> None:
        self._start, self._shape = start, (len(paths), 1, size, size)
        self._readings = [
            pool.submit(_read_some, paths[first : first + FILES_PER_TASK], size)
            for first in range(0, len(paths), FILES_PER_TASK)
        ]

    def finish(self, on_error: OnError, *, pinned: bool) -> Chunk:
        pixels = torch.empty(self._shape, dtype=torch.uint8, pin_memory=pinned)
        places: list[int] = []
        skipped: list[tuple[int, str]] = []
        results = chain.from_iterable(reading.result() for reading in self._readings)
        for place, result in enumerate(results, self._start):
            if isinstance(result, np.ndarray):
                pixels.numpy()[len(places)] = result  # by torch it would take all cores' threads
                places.append(place)
            elif on_error == "raise":
                raise result
            else:
                skipped.append((place, str(result)))
        return Chunk(pixels[: len(places)], tuple(places), tuple(skipped))


def _read_some(paths: Sequence[Path], size: int) -> list[NDArray[np.uint8] | DataError]:
    return [_read(path, size) for path in paths]


def _read(path: Path, size: int) -> NDArray[np.uint8] | DataError:
    """(1, size, size), or what is wrong with the file."""
    try:
        return read_resized(path, size).numpy()
    except DataError as error:
        return error
