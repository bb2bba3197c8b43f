"""Files decoded ahead of their use, in order, in bounded memory.

While one chunk is scored, threads decode the next ones. Decoders release the interpreter's lock, so
threads keep a few cores busy without any start-up time. Sixteen threads wait for each other now and
then, so where a GPU scores an archive, processes decode it.
"""

import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from squid.data.dicom import OtherObject
from squid.data.image import Resized, read_resized
from squid.data.levels import RangeWarning
from squid.data.reading import AS_DECLARED, Reading
from squid.errors import DataError

OnError = Literal["raise", "skip"]

AHEAD = 2
"""Chunks that are decoded before they are needed."""
FILES = 128
"""Files in a chunk of `read_many`."""
FILES_PER_TASK = 4
"""Files in one task of a decoder: handing a task over holds the interpreter's lock."""
MANY = 2048
"""Files from which on the start of processes pays."""


@dataclass(frozen=True)
class LoadedImages:
    """Decoded images of one size, in the order of their sources."""

    pixels: Tensor
    """(n, 1, size, size) uint8."""
    places: tuple[int, ...]
    """(n,) index of each image in the list that was asked for."""
    sources: tuple[str, ...]
    """(n,) file of each image, or its number in an array."""
    skipped: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""
    warnings: tuple[tuple[str, ...], ...]
    """(n,) what may be wrong with each image; each begins with a verb."""
    steps: tuple[tuple[str, ...], ...]
    """(n,) what was done to each image, in order."""
    not_applicable: tuple[str, ...]
    """(n,) why an image has no score, '' where it has."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Paths that were not taken for images, each with the reason."""

    @property
    def first_warning(self) -> str:
        """That of the first image which has one, with its name; '' where none has."""
        both = zip(self.sources, self.warnings, strict=True)
        return next((f"{source} {some[0]}" for source, some in both if some), "")


def read_many(
    paths: Sequence[Path],
    size: int,
    *,
    on_error: OnError = "raise",
    progress: Callable[[int, int], None] | None = None,
    reading: Reading = AS_DECLARED,
) -> LoadedImages:
    """All files, decoded and resized; the order is kept."""
    pixels = torch.empty(len(paths), 1, size, size, dtype=torch.uint8)
    places: list[int] = []
    sources: list[str] = []
    skipped: list[tuple[str, str]] = []
    found: list[tuple[str, ...]] = []
    steps: list[tuple[str, ...]] = []
    reasons: list[str] = []
    left_out: list[tuple[str, str]] = []
    for chunk in stream(paths, size, FILES, on_error=on_error, reading=reading):
        pixels[len(places) : len(places) + len(chunk.places)] = chunk.pixels
        places += chunk.places
        sources += chunk.sources
        skipped += chunk.skipped
        found += chunk.warnings
        steps += chunk.steps
        reasons += chunk.not_applicable
        left_out += chunk.left_out
        if progress is not None:
            progress(len(places) + len(skipped) + len(left_out), len(paths))
    return LoadedImages(
        pixels[: len(places)],
        tuple(places),
        tuple(sources),
        tuple(skipped),
        tuple(found),
        tuple(steps),
        tuple(reasons),
        tuple(left_out),
    )


def stream(
    paths: Sequence[Path],
    size: int,
    batch_size: int,
    *,
    on_error: OnError = "raise",
    for_gpu: bool = False,
    reading: Reading = AS_DECLARED,
) -> Iterator[LoadedImages]:
    """All files in order, in chunks of `batch_size` files less those that are skipped.

    The first file with which something may be wrong gives a `RangeWarning`; every chunk has those
    of all its files.

    However long the list is, at most `AHEAD` chunks wait in memory. With `for_gpu` a GPU does the
    rest of the work: all cores decode, and pixels are pinned for the copy to it.
    """
    pinned = for_gpu and torch.cuda.is_available()
    begun: deque[_Chunk] = deque()
    warned = False

    def finish() -> LoadedImages:
        nonlocal warned
        chunk = begun.popleft().finish(on_error, pinned=pinned)
        # Here rather than where it was read: a process that decodes has no one to warn.
        if not warned and chunk.first_warning:
            warned = True
            warnings.warn(chunk.first_warning, RangeWarning, stacklevel=3)
        return chunk

    pool = _decoders(processes=for_gpu and len(paths) >= MANY)
    try:
        for start in range(0, len(paths), batch_size):
            begun.append(_Chunk(pool, paths[start : start + batch_size], start, size, reading))
            if len(begun) > AHEAD:
                yield finish()
        while begun:
            yield finish()
    except BrokenProcessPool:
        raise DataError("A process that decoded files was killed; is there memory left?") from None
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _decoders(*, processes: bool) -> Executor:
    """A pool of threads, or of processes on Linux, where they start at once as copies."""
    if not processes or sys.platform != "linux":
        return ThreadPoolExecutor(cores(), thread_name_prefix="decode")
    return ProcessPoolExecutor(cores(), get_context("fork"), initializer=_prepare_process)


def _prepare_process() -> None:
    torch.set_num_threads(1)  # a copy of a process has none of its threads
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one


class _Chunk:
    """Neighbouring files that are being decoded."""

    def __init__(
        self, pool: Executor, paths: Sequence[Path], start: int, size: int, reading: Reading
    ) -> None:
        self._paths, self._start, self._size = paths, start, size
        self._tasks = [
            pool.submit(_read_some, paths[first : first + FILES_PER_TASK], size, reading)
            for first in range(0, len(paths), FILES_PER_TASK)
        ]

    def finish(self, on_error: OnError, *, pinned: bool) -> LoadedImages:
        shape = (len(self._paths), 1, self._size, self._size)
        pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=pinned)
        read: list[int] = []
        skipped: list[tuple[str, str]] = []
        found: list[tuple[str, ...]] = []
        steps: list[tuple[str, ...]] = []
        reasons: list[str] = []
        left_out: list[tuple[str, str]] = []
        for i, result in enumerate(chain.from_iterable(task.result() for task in self._tasks)):
            if isinstance(result, Resized):
                # Assigned by NumPy: torch would start threads on all cores for so little.
                pixels.numpy()[len(read)] = result.pixels
                read.append(i)
                found.append(result.warnings)
                steps.append(result.steps)
                reasons.append(result.not_applicable)
            elif on_error == "raise":
                raise result
            elif isinstance(result, OtherObject):
                name = str(self._paths[i])
                left_out.append((name, str(result).removeprefix(f"{name} is ")))
            else:
                skipped.append((str(self._paths[i]), str(result)))
        return LoadedImages(
            pixels[: len(read)],
            tuple(self._start + i for i in read),
            tuple(str(self._paths[i]) for i in read),
            tuple(skipped),
            tuple(found),
            tuple(steps),
            tuple(reasons),
            tuple(left_out),
        )


def _read_some(paths: Sequence[Path], size: int, reading: Reading) -> list[Resized | DataError]:
    """Each file, or what is wrong with it."""
    found: list[Resized | DataError] = []
    for path in paths:
        try:
            found.append(read_resized(path, size, reading=reading))
        except DataError as error:
            found.append(error)
    return found
