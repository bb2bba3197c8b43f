"""Files decoded ahead of whoever uses them, in order, in bounded memory.

While one chunk is scored, threads decode the next ones. Decoders let go of the interpreter's lock,
so threads keep all cores busy, and need neither start-up time nor a second copy of an image.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
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
    paths: Sequence[Path], size: int, batch_size: int, *, on_error: OnError = "raise"
) -> Iterator[Chunk]:
    """All files in order, `batch_size` to a chunk, less those that are skipped.

    However many files there are, at most `AHEAD` chunks are held beside the one just given.
    """
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="decode")
    try:
        reads = _ahead(pool, paths, size, limit=AHEAD * batch_size)
        for start in range(0, len(paths), batch_size):
            yield _chunk(start, list(islice(reads, batch_size)), size, on_error)
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """That this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _ahead(
    pool: ThreadPoolExecutor, paths: Sequence[Path], size: int, limit: int
) -> Iterator[Tensor | DataError]:
    """Results in order; never more than `limit` of them are under way or waiting."""
    waiting: deque[Future[list[Tensor | DataError]]] = deque()
    for start in range(0, len(paths), FILES_PER_TASK):
        waiting.append(pool.submit(_read_some, paths[start : start + FILES_PER_TASK], size))
        if len(waiting) * FILES_PER_TASK > limit:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _read_some(paths: Sequence[Path], size: int) -> list[Tensor | DataError]:
    return [_read(path, size) for path in paths]


def _read(path: Path, size: int) -> Tensor | DataError:
    try:
        return read_resized(path, size)
    except DataError as error:
        return error


def _chunk(
    start: int, results: Sequence[Tensor | DataError], size: int, on_error: OnError
) -> Chunk:
    images: list[Tensor] = []
    places: list[int] = []
    skipped: list[tuple[int, str]] = []
    for place, result in enumerate(results, start):
        if isinstance(result, Tensor):
            images.append(result)
            places.append(place)
        elif on_error == "raise":
            raise result
        else:
            skipped.append((place, str(result)))
    pixels = torch.stack(images) if images else torch.empty(0, 1, size, size, dtype=torch.uint8)
    return Chunk(pixels, tuple(places), tuple(skipped))
