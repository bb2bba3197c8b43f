"""The reader of elements: what it finds is what pydicom finds, and nothing makes it fail."""

import io
import math
import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squid.data.dicom import elements as module
from squid.data.dicom import read_dicom
from squid.data.dicom.elements import DEFLATED, META, Elements, read_elements, read_file
from squid.data.dicom.tags import Tag
from squid.data.reading import DicomReading
from squid.errors import DataError

Make = Callable[..., bytes]
PREAMBLE = bytes(128) + b"DICM"
WORDS = ("Rows", "Columns", "BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel")
TEXTS = ("StudyInstanceUID", "SOPInstanceUID", "Modality", "PhotometricInterpretation")
NUMBERS = ("WindowCenter", "WindowWidth", "RescaleSlope", "RescaleIntercept", "PixelSpacing")


def values(element: object) -> list[object]:
    """The values of pydicom's element, whether it has one or several."""
    if element is None or element == "":
        return []
    return list(element) if isinstance(element, pydicom.multival.MultiValue) else [element]


def test_headers_are_those_that_pydicom_reads(gray_files: dict[str, Path]) -> None:
    compared = 0
    for name, path in gray_files.items():
        data = path.read_bytes()
        ours = read_file(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = pydicom.dcmread(io.BytesIO(data), stop_before_pixels=True)
            if "Rows" not in theirs:
                continue  # it gives up on a file that ends within its pixels
            assert ours.syntax == theirs.file_meta.TransferSyntaxUID, name
            for keyword in WORDS:
                expected = values(theirs.get(keyword))
                assert list(ours.dataset.words(Tag[keyword])) == expected, (name, keyword)
            for keyword in TEXTS:
                expected = values(theirs.get(keyword))
                assert list(ours.dataset.texts(Tag[keyword])) == expected, (name, keyword)
            for keyword in NUMBERS:
                expected = [float(value) for value in values(theirs.get(keyword))]
                assert list(ours.dataset.numbers(Tag[keyword])) == expected, (name, keyword)
        compared += 1
    assert compared >= 99


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(DataError):
        read_dicom(PREAMBLE + data, DicomReading())


TAGS = st.sampled_from([*Tag, 0x00091001, 0xFFFEE000, 0xFFFEE00D, 0xFFFEE0DD])
KINDS = st.sampled_from([b"US", b"SQ", b"OW", b"UN", b"DS", b"ZZ", b"\0\0"])
LENGTHS = st.sampled_from([0, 2, 8, 100, 0xFFFE, 0xFFFFFFFF])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TAGS, KINDS, LENGTHS, st.binary(max_size=12)), max_size=12))
def test_any_elements_are_read_or_refused(parts: list[tuple[int, bytes, int, bytes]]) -> None:
    written = b"".join(
        struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, kind, length & 0xFFFF)
        + (struct.pack("<I", length) if kind in (b"SQ", b"OW", b"UN") else b"")
        + content
        for tag, kind, length, content in parts
    )
    try:
        found = read_elements(memoryview(written), 0, META)
    except DataError:
        return
    assert all(len(element.value) <= len(written) for element in found.found.values())


def test_nested_sequences_of_every_form_are_passed_over(make: Make) -> None:
    item = pydicom.Dataset()
    item.Rows, item.PatientID = 7, "not this one"
    for undefined in (True, False):
        outer = pydicom.Dataset()
        outer.ReferencedImageSequence = [item, item]
        outer["ReferencedImageSequence"].is_undefined_length = undefined
        outer.is_undefined_length_sequence_item = undefined
        data = make(
            np.ones((20, 30), np.uint16), RequestAttributesSequence=[outer], PatientID="this one"
        )
        dataset = read_file(data).dataset
        assert dataset.word(Tag.Rows, 0) == 20
        assert dataset.text(Tag.PatientID) == "this one"


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_ELEMENTS", 10, "has more than 10 DICOM elements"),
        ("MAX_INFLATED", 100, "inflates to more than 0 MiB"),
    ],
)
def test_limits_are_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(DataError, match=message):
        read_file(make(np.ones((20, 30), np.uint16), syntax=DEFLATED))


def test_depth_is_limited() -> None:
    opening = b"\x08\0\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\xff\xff\xff\xff"
    read_elements(memoryview(opening * (module.MAX_DEPTH // 2)), 0, META)
    with pytest.raises(DataError, match="nests sequences more than 32 deep"):
        read_elements(memoryview(opening * (module.MAX_DEPTH // 2 + 1)), 0, META)


def test_numbers_keep_their_places() -> None:
    widths, centres = rb"nan\ 2.5\x\inf\-1e3 ", rb"\7\8\9\\10"
    found = Elements(
        {
            Tag.WindowWidth: module.Element(memoryview(widths), False),
            Tag.WindowCenter: module.Element(memoryview(centres), False),
        },
        META,
    )
    numbers = found.numbers(Tag.WindowWidth)
    assert [number for number in numbers if math.isfinite(number)] == [2.5, -1000.0]
    assert len(numbers) == 5
    assert found.pairs(Tag.WindowCenter, Tag.WindowWidth) == [(1, 7.0, 2.5)]
    assert found.pairs(Tag.WindowCenter, Tag.RescaleSlope) == []
