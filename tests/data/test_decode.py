"""Files decoded ahead: their order, how many, and what happens to broken ones."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from squid.data import decode
from squid.data.decode import AHEAD, read_many, stream
from squid.data.image import Resized
from squid.data.levels import RangeWarning
from squid.data.reading import Reading
from squid.errors import DataError

SIZE = 8


def black(size: int) -> Resized:
    return Resized(np.zeros((size, size), np.uint8))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Eleven gray pictures, each of one value."""
    paths = [tmp_path / f"{i}.png" for i in range(11)]
    for i, path in enumerate(paths):
        PIL.Image.fromarray(np.full((12, 10), 20 * i, dtype=np.uint8)).save(path)
    return paths


def test_keeps_the_order_and_the_pixels(files: list[Path]) -> None:
    chunks = list(stream(files, SIZE, 4))
    assert [chunk.places for chunk in chunks] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10)]
    pixels = torch.cat([chunk.pixels for chunk in chunks])
    assert torch.equal(pixels, read_many(files, SIZE).pixels)


def test_real_files_read_as_they_do_one_by_one(shared: Callable[..., Path]) -> None:
    paths = sorted(shared("data", "zhanglab_originals").rglob("*.jpeg"))[:3]
    (chunk,) = stream(paths, 32, 3)
    assert torch.equal(chunk.pixels, read_many(paths, 32).pixels)


def test_a_broken_file_is_named_and_skipped(files: list[Path]) -> None:
    files[5].write_bytes(b"not a picture")
    chunks = list(stream(files, SIZE, 4, on_error="skip"))
    assert [chunk.places for chunk in chunks] == [(0, 1, 2, 3), (4, 6, 7), (8, 9, 10)]
    ((source, reason),) = chunks[1].skipped
    assert source == str(files[5])
    assert source in reason
    assert chunks[1].sources == tuple(str(files[i]) for i in (4, 6, 7))
    assert chunks[1].pixels[:, 0, 0, 0].tolist() == [80, 120, 140]


def test_a_broken_file_stops_it_by_default(files: list[Path]) -> None:
    files[5].write_bytes(b"not a picture")
    chunks = stream(files, SIZE, 4)
    assert next(chunks).places == (0, 1, 2, 3)
    with pytest.raises(DataError, match=r"5\.png"):
        next(chunks)


def test_a_chunk_of_broken_files_is_empty(files: list[Path]) -> None:
    for path in files[:4]:
        path.write_bytes(b"")
    first = next(stream(files, SIZE, 4, on_error="skip"))
    assert first.pixels.shape == (0, 1, SIZE, SIZE)
    assert len(first.skipped) == 4


def test_reads_only_so_far_ahead(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(
        decode, "read_resized", lambda path, size, **_: read.append(path) or black(size)
    )
    chunks = stream(files * 20, SIZE, 4)
    next(chunks)
    next(chunks)
    assert len(read) <= (2 + AHEAD) * 4
    chunks.close()


def test_decodes_while_a_chunk_is_used(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk is complete before anyone asks for it."""
    read, second = list[Path](), threading.Event()

    def note(path: Path, size: int, **_: object) -> Resized:
        read.append(path)
        if len(read) == 8:
            second.set()
        return black(size)

    monkeypatch.setattr(decode, "read_resized", note)
    chunks = stream(files, SIZE, 4)
    next(chunks)
    assert second.wait(10)
    chunks.close()


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes start for a handful of files."""
    if sys.platform != "linux":
        pytest.skip("processes do not start as copies here")
    monkeypatch.setattr(decode, "MANY", 1)


@pytest.mark.usefixtures("few_are_many")
def test_processes_read_what_threads_read(files: list[Path]) -> None:
    files[5].write_bytes(b"not a picture")
    ours, theirs = (
        list(stream(files, SIZE, 4, on_error="skip", for_gpu=gpu)) for gpu in (False, True)
    )
    assert [chunk.places for chunk in ours] == [chunk.places for chunk in theirs]
    assert [chunk.skipped for chunk in ours] == [chunk.skipped for chunk in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.pixels, b.pixels)


@pytest.mark.usefixtures("few_are_many")
def test_long_lists_for_a_gpu_are_decoded_by_processes(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sign(path: Path, size: int, **_: object) -> Resized:
        return Resized(np.full((size, size), os.getpid() % 251, dtype=np.uint8))

    monkeypatch.setattr(decode, "read_resized", sign)
    here = os.getpid() % 251
    by_threads = torch.cat([chunk.pixels for chunk in stream(files, SIZE, 4)])
    assert (by_threads == here).all()
    by_processes = torch.cat([c.pixels for c in stream(files, SIZE, 4, for_gpu=True)])
    assert (by_processes != here).any()


@pytest.mark.usefixtures("few_are_many")
def test_a_killed_process_is_a_sentence(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "read_resized", lambda path, size, **_: os._exit(9))
    with pytest.raises(DataError, match="killed"):
        list(stream(files, SIZE, 4, for_gpu=True))


@pytest.fixture
def dark(tmp_path: Path) -> list[Path]:
    """Six 16-bit files, all with values of 12 bits but the first."""
    paths = [tmp_path / f"dark-{i}.png" for i in range(6)]
    for i, path in enumerate(paths):
        largest = 4095 if i else 65535
        PIL.Image.fromarray(np.linspace(0, largest, 100).reshape(10, 10).astype("uint16")).save(
            path
        )
    return paths


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.usefixtures("few_are_many")
def test_a_small_range_is_reported_once_for_a_list_of_files(dark: list[Path], gpu: bool) -> None:
    with pytest.warns(RangeWarning, match=r"dark-1\.png uses the values 0 to 4,095") as caught:
        chunks = list(stream(dark, SIZE, 2, for_gpu=gpu))
    assert len(caught) == 1
    assert [[len(some) for some in chunk.warnings] for chunk in chunks] == [[0, 1], [1, 1], [1, 1]]


def test_significant_bits_are_the_callers_to_set(dark: list[Path]) -> None:
    pixels = read_many(dark[1:], SIZE, reading=Reading(bits=12)).pixels
    assert pixels.max() > 240
    with pytest.raises(DataError, match=r"dark-0\.png holds the value 65,535, more than 12 bits"):
        read_many(dark, SIZE, reading=Reading(bits=12))


def test_images_without_a_meaningful_score_carry_the_reason(
    files: list[Path], tmp_path: Path
) -> None:
    wide = np.arange(400, dtype=np.uint16).reshape(20, 20) * 160
    for name, values in (("fine", wide), ("flat", np.full_like(wide, 60000))):
        PIL.Image.fromarray(values).save(tmp_path / f"{name}.png")
    named = [tmp_path / f"{name}.png" for name in ("fine", "flat")]
    loaded = read_many([*named, files[0]], SIZE)
    assert loaded.not_applicable == (
        "",
        "not applicable: all pixels have one gray value",
        "not applicable: 10 x 12 pixels, fewer than 16 a side",
    )


def test_no_files_no_chunks() -> None:
    assert list(stream([], SIZE, 4)) == []
