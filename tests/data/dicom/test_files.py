"""Every gray file of pydicom and of pydicom-data: decoded as pydicom does it, and rendered as
DCMTK, which shares no code with pydicom, renders it."""

import io
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np
import PIL.Image
import pydicom
import pytest
from pydicom.encaps import encapsulate

from squid.data.dicom.elements import File, fragments, read_file
from squid.data.dicom.header import layout_of
from squid.data.dicom.pixels import Stored, read_pixels
from squid.data.dicom.render import render
from squid.data.dicom.tags import Tag
from squid.data.reading import DicomReading
from squid.errors import DataError

from ...parts import need

BROKEN = {
    "JPEG2000-embedded-sequence-delimiter.dcm": "JPEG 2000 tiles",
    "MR_truncated.dcm": "ends within its pixels",
    "badVR.dcm": "has 1A frames",
}
"""Files that are broken on purpose, and why they are refused."""
END = bytes.fromhex("feffdde000000000")
"""The end of a sequence of fragments."""
LARGE = 2**20
"""Bytes from which on pydicom's own decoding is not repeated, since it takes seconds."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without pydicom's own warnings about the files that it is asked to read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def single(path: Path) -> bytes:
    """The file, or its first frame as a file: images of several frames are refused."""
    data = bytearray(path.read_bytes())
    file = read_file(data)
    frames = file.dataset.text(Tag.NumberOfFrames)
    if not frames.isdecimal() or frames == "1":
        return bytes(data)
    file.dataset.found[Tag.NumberOfFrames].value[:] = b"1 "
    pixels = file.dataset.found[Tag.PixelData]
    if not pixels.undefined:
        return bytes(data)  # what follows the first frame is not looked at
    # In these files each frame is one fragment after the table.
    first = bytes(list(fragments(pixels.value))[1])
    return bytes(data[: -len(pixels.value)]) + encapsulate([first]) + END


def decode(data: bytes) -> tuple[File, Stored]:
    """The steps of `read_dicom` that CT and MR pass as well."""
    file = read_file(data)
    return file, read_pixels(file, layout_of(file.dataset))


def test_all_but_the_broken_files_are_decoded_as_pydicom_does(gray_files: dict[str, Path]) -> None:
    refused: dict[str, str] = {}
    for path in gray_files.values():
        data = single(path)
        try:
            _, stored = decode(data)
        except DataError as error:
            refused[path.name] = str(error)
            continue
        if len(data) < LARGE:
            with quiet():
                expected = pydicom.dcmread(io.BytesIO(data)).pixel_array
            expected = expected.reshape(-1, *stored.patterns.shape)[0]
            np.testing.assert_array_equal(stored.values[stored.patterns], expected, path.name)
    assert refused.keys() == BROKEN.keys()
    assert all(BROKEN[name] in reason for name, reason in refused.items())
    assert len(gray_files) >= 100


NO_OTHER_READER = {"rtdose_expb_1frame.dcm", "rtdose_expb.dcm"}
"""DCMTK swaps words of two bytes in big-endian pixels of four."""
OWN, RANGE = "the file's own", "the least to the largest value"
"""What both readers take for black and white. Of DCMTK's other windows, +Wh (percentiles) is not
compared: it counts whole bins of a histogram, and so differs by tens of gray values in images of
256 pixels. +Wr, +Wn and +Ww (a region, no extremes, typed numbers) are no way of reading here."""
ROUNDED_DOWN = {
    OWN: {"4648"},
    RANGE: {"JPEG-lossy.dcm", "JPGExtended.dcm", "JPEG2000_UNC.dcm"},
}
"""Images of few gray values, which DCMTK rounds down: between 0.6 and 0.8 of 255 on average."""
OTHER_FRAMES = {"emri_small.dcm", "emri_small_big_endian.dcm"}
"""DCMTK looks for the largest value in all their frames, of which the first is left here."""


def rendered_by_dcmtk(data: bytes, options: list[str], folder: Path) -> np.ndarray | None:
    """(h, w) bytes; None for JPEG 2000, which DCMTK does not read."""
    source, target = folder / "image.dcm", folder / "image.pgm"
    source.write_bytes(data)
    for tool in ("dcm2pnm", "dcmj2pnm", "dcml2pnm"):
        command = [tool, "--no-overlays", *options, "--write-raw-pnm", str(source), str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return np.asarray(PIL.Image.open(target))
    return None


def options_of(file: File, way: str) -> tuple[list[str], DicomReading]:
    """What a file is rendered with: its table, its window, or its whole range; or from the least
    to the largest value that it has."""
    if way == RANGE:
        return ["+Wm"], DicomReading(voi="percentile")
    if Tag.VOILUTSequence in file.dataset:
        return ["+Wl", "1"], DicomReading()
    if Tag.WindowWidth in file.dataset:
        return ["+Wi", "1"], DicomReading()
    return ["-W"], DicomReading(voi="full")


def other_readers(
    gray_files: dict[str, Path], folder: Path, way: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Name of each file that DCMTK reads, and how far its bytes are from our shares of white in
    255ths."""
    for path in gray_files.values():
        data = single(path)
        try:
            file, stored = decode(data)
        except DataError:
            continue
        options, reading = options_of(file, way)
        expected = rendered_by_dcmtk(data, options, folder)
        # DCMTK counts padding among the values.
        left_out = NO_OTHER_READER | (OTHER_FRAMES if way == RANGE else set())
        padded = way == RANGE and Tag.PixelPaddingValue in file.dataset
        if expected is not None and path.name not in left_out and not padded:
            shades, _ = render(stored, layout_of(file.dataset), file.dataset, reading)
            yield path.name, np.abs(255.0 * shades.to_unit() - expected)


@pytest.mark.parametrize(("way", "least"), [(OWN, 80), (RANGE, 65)])
def test_gray_values_are_those_of_dcmtk(
    gray_files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    least: int,
) -> None:
    need("dcm2pnm", package="dcmtk")
    # Percentiles that leave no pixel out: the least and the largest value.
    monkeypatch.setattr(import_module("squid.data.dicom.render"), "PERCENTILES", (1e-9, 1.0))
    means = {}
    for name, apart in other_readers(gray_files, tmp_path, way):
        assert apart.max() <= 2.0, name
        means[name] = apart.mean()
    assert {name for name, mean in means.items() if mean > 0.6} == ROUNDED_DOWN[way]
    assert max(means.values()) <= 0.8
    assert len(means) >= least
