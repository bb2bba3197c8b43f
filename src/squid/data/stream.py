"""Files decoded ahead of whoever uses them, in order, in bounded memory.

While one chunk is scored, threads decode the next ones. Decoders let go of the interpreter's lock,
so threads keep all cores busy, and need neither start-up time nor a second copy of an image.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from squid.data.image import read_resized
from squid.errors import DataError

OnError = Literal["raise", "skip"]

AHEAD = 2
"""Chunks decoded before they are asked for."""
FILES = 128
"""In a chunk of `read_many`."""
FILES_PER_TASK = 4
"""Handed to a thread at once: each handing over holds the interpreter's lock."""


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
    pinned: bool = False,
) -> Iterator[Chunk]:
    """All files in order, `batch_size` to a chunk, less those that are skipped.

    However many files there are, at most `AHEAD` chunks are held beside the one just given. Pixels
    are `pinned` where a GPU will copy them.
    """
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="decode")
    begun: deque[_Begun] = deque()
    try:
        for start in range(0, len(paths), batch_size):
            begun.append(_Begun(pool, paths[start : start + batch_size], start, size, pinned))
            if len(begun) > AHEAD:
                yield begun.popleft().finish(on_error)
        while begun:
            yield begun.popleft().finish(on_error)
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """That this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _Begun:
    """A chunk whose files are being decoded.

    Threads put each image where it belongs: one joining them afterwards would keep the decoders
    from the cores, all the more as torch copies with as many threads as there are.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, paths: Sequence[Path], start: int, size: int, pinned: bool
    ) -> None:
        self._start, self._paths = start, paths
        self._pixels = torch.empty(len(paths), 1, size, size, dtype=torch.uint8, pin_memory=pinned)
        self._readings = [
            pool.submit(self._read, slice(first, first + FILES_PER_TASK))
            for first in range(0, len(paths), FILES_PER_TASK)
        ]

    def _read(self, part: slice) -> list[DataError | None]:
        """What was wrong with each file of a part."""
        return list(map(_read_into, self._pixels[part], self._paths[part]))

    def finish(self, on_error: OnError) -> Chunk:
        errors = [error for reading in self._readings for error in reading.result()]
        kept = [i for i, error in enumerate(errors) if error is None]
        skipped = [(self._start + i, error) for i, error in enumerate(errors) if error is not None]
        if skipped and on_error == "raise":
            raise skipped[0][1]
        return Chunk(
            self._pixels[kept] if skipped else self._pixels,
            tuple(self._start + i for i in kept),
            tuple((place, str(error)) for place, error in skipped),
        )


def _read_into(pixels: Tensor, path: Path) -> DataError | None:
    """What was wrong with the file, if anything; its `pixels` are (1, size, size) uint8."""
    try:
        pixels.copy_(read_resized(path, pixels.shape[-1]))
    except DataError as error:
        return error
    return None
