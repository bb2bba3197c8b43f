"""The grayscale pipeline against numbers computed by hand from DICOM PS3.3 C.7.6.3 and C.11."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pydicom
import pytest

from squid.data.dicom import read_dicom
from squid.data.levels import Shades
from squid.data.reading import DicomReading
from squid.errors import DataError

Make = Callable[..., bytes]
EIGHT = np.array([[0, 64, 128, 255]], np.uint8)
FULL_WINDOW = {"WindowCenter": 128, "WindowWidth": 256}  # v / 255 by the formula for LINEAR
SHARES = (0.0, 64 / 255, 128 / 255, 1.0)


def shares(data: bytes, reading: DicomReading) -> tuple[list[float], tuple[str, ...]]:
    """The first row of an image, and its steps."""
    gray = read_dicom(data, reading)
    assert isinstance(gray.pixels, Shades)
    return gray.pixels.to_unit()[0].tolist(), gray.steps


def words(*values: int) -> np.ndarray:
    return np.array([values], np.uint16)


def table(first: int, entries: list[int], bits: int) -> pydicom.Sequence:
    """A lookup table with 16-bit entries."""
    item = pydicom.Dataset()
    item.LUTDescriptor = [len(entries), first, bits]
    item["LUTDescriptor"].VR = "US" if first >= 0 else "SS"
    item.add_new("LUTData", "OW", np.array(entries, "<u2").tobytes())
    return pydicom.Sequence([item])


FILE, ALL = DicomReading(), DicomReading(voi="full")
INVERTED = tuple(1.0 - share for share in SHARES)
CASES: dict[str, tuple[np.ndarray, dict[str, Any], DicomReading, tuple[float, ...]]] = {
    "8 bits, linear": (EIGHT, FULL_WINDOW, FILE, SHARES),
    # (v - (2048 - 0.5)) / (1001 - 1) + 0.5
    "12 bits, linear": (
        words(1547, 1548, 2048, 2548),
        {"BitsStored": 12, "WindowCenter": 2048, "WindowWidth": 1001},
        FILE,
        (0.0, 0.0005, 0.5005, 1.0),
    ),
    # (v - 2048) / 1000 + 0.5
    "12 bits, exact": (
        words(1548, 1798, 2048, 2548),
        {
            **{"BitsStored": 12, "WindowCenter": 2048, "WindowWidth": 1000},
            "VOILUTFunction": "LINEAR_EXACT",
        },
        FILE,
        (0.0, 0.25, 0.5, 1.0),
    ),
    # 1 / (1 + exp(-4 (v - 2048) / 1000))
    "16 bits, sigmoid": (
        words(1798, 2048, 2298, 3048),
        {"WindowCenter": 2048, "WindowWidth": 1000, "VOILUTFunction": "SIGMOID"},
        FILE,
        (0.2689414, 0.5, 0.7310586, 0.9820138),
    ),
    "a window of width 1": (
        words(99, 100, 101),
        {"WindowCenter": 100, "WindowWidth": 1},
        FILE,
        (0.0, 1.0, 1.0),
    ),
    "the first of two windows": (
        EIGHT,
        {"WindowCenter": [128, 10], "WindowWidth": [256, 20]},
        FILE,
        SHARES,
    ),
    "the second of two windows, whose first has no centre": (
        EIGHT,
        {"WindowCenter": "\\128", "WindowWidth": "1024\\256"},
        FILE,
        SHARES,
    ),
    "the second of two windows, whose first has a width of 0": (
        EIGHT,
        {"WindowCenter": [40, 128], "WindowWidth": [0, 256]},
        FILE,
        SHARES,
    ),
    "zero is white": (
        EIGHT,
        {**FULL_WINDOW, "PhotometricInterpretation": "MONOCHROME1"},
        FILE,
        INVERTED,
    ),
    "zero is white, said twice": (
        EIGHT,
        {
            **{**FULL_WINDOW, "PhotometricInterpretation": "MONOCHROME1"},
            "PresentationLUTShape": "INVERSE",
        },
        FILE,
        INVERTED,
    ),
    "zero is white by its shape": (
        EIGHT,
        {**FULL_WINDOW, "PresentationLUTShape": "INVERSE"},
        FILE,
        INVERTED,
    ),
    "zero is white, against its shape": (
        EIGHT,
        {
            **{**FULL_WINDOW, "PhotometricInterpretation": "MONOCHROME1"},
            "PresentationLUTShape": "IDENTITY",
        },
        FILE,
        INVERTED,
    ),
    "zero is black, said twice": (
        EIGHT,
        {**FULL_WINDOW, "PresentationLUTShape": "IDENTITY"},
        FILE,
        SHARES,
    ),
    # (v - 999.5) / 4000 + 0.5
    "signed, linear": (
        np.array([[-1000, 0, 1000, 3000]], np.int16),
        {"WindowCenter": 1000, "WindowWidth": 4001},
        FILE,
        (0.000125, 0.250125, 0.500125, 1.0),
    ),
    # twelve bits are -2048, -1, 0 and 2047, whatever the other four hold: (v + 2048) / 4095
    "signed, 12 bits, unused ones set": (
        words(0x0800, 0x0FFF, 0x3000, 0xA7FF),
        {"BitsStored": 12, "PixelRepresentation": 1},
        ALL,
        (0.0, 2047 / 4095, 2048 / 4095, 1.0),
    ),
    # what can be stored counts, not what is: 1,023 is white
    "10 bits, full range": (words(93, 341, 682), {"BitsStored": 10}, ALL, (1 / 11, 1 / 3, 2 / 3)),
    "12 bits in the upper part of a word": (
        words(0x0000, 0x5550, 0xFFF0),
        {"BitsStored": 12, "HighBit": 15},
        ALL,
        (0.0, 1 / 3, 1.0),
    ),
    # 0.684 v + 200 = 200, 1568 and 2936, then (x - 1599.5) / 2799 + 0.5
    "rescaled, linear": (
        words(0, 2000, 4000),
        {
            **{"BitsStored": 12, "RescaleSlope": 0.684, "RescaleIntercept": 200},
            **{"WindowCenter": 1600, "WindowWidth": 2800},
        },
        FILE,
        (0.0, 0.4887460, 0.9774920),
    ),
    # -1024 and 2 stand at the second place of their elements: 2 v - 1024, then x / 510 + 1024 / 510
    "rescaled by values at one place": (
        EIGHT,
        {"RescaleSlope": "\\2", "RescaleIntercept": "7\\-1024"},
        ALL,
        SHARES,
    ),
    "a slope without an intercept": (
        EIGHT,
        {**FULL_WINDOW, "RescaleSlope": "2\\3", "RescaleIntercept": "\\"},
        FILE,
        SHARES,
    ),
    "modality table from 100 on": (
        words(99, 100, 101, 102, 200),
        {"ModalityLUTSequence": table(100, [0, 51, 255], 8)},
        ALL,
        (0.0, 0.0, 0.2, 1.0, 1.0),
    ),
    "VOI table from 4 on": (
        words(0, 4, 5, 6, 9),
        {"VOILUTSequence": table(4, [0, 1023, 2046, 4095], 12), **FULL_WINDOW},
        FILE,
        (0.0, 0.0, 1023 / 4095, 2046 / 4095, 1.0),
    ),
    "VOI table from -2 on": (
        np.array([[-9, -2, -1, 0, 9]], np.int16),
        {"VOILUTSequence": table(-2, [0, 51, 255], 8)},
        FILE,
        (0.0, 0.0, 0.2, 1.0, 1.0),
    ),
    "padding stays black where zero is white": (
        EIGHT,
        {**FULL_WINDOW, "PhotometricInterpretation": "MONOCHROME1", "PixelPaddingValue": 0},
        FILE,
        (0.0, *INVERTED[1:]),
    ),
    "signed padding of a range": (
        np.array([[-2000, -1990, -1024, 976]], np.int16),
        {
            **{"PixelPaddingValue": -2000, "PixelPaddingRangeLimit": -1500},
            **{"WindowCenter": -24, "WindowWidth": 2000, "VOILUTFunction": "LINEAR_EXACT"},
            "PhotometricInterpretation": "MONOCHROME1",
        },
        FILE,
        (0.0, 0.0, 1.0, 0.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gray_values_are_those_computed_by_hand(make: Make, name: str) -> None:
    pixels, elements, reading, expected = CASES[name]
    found, _ = shares(make(pixels, **elements), reading)
    assert found == pytest.approx(expected, abs=1e-6)


# 1,000 values, each once: 0.5 % of the pixels are 4 or less, 99.5 % are 994 or less.
COUNTING = np.arange(1000, dtype=np.uint16).reshape(10, 100)
NO_WINDOW: dict[str, dict[str, Any]] = {
    "none": {},
    "of width 0": {"WindowCenter": 500, "WindowWidth": 0},
    "without a width": {"WindowCenter": 500, "WindowWidth": ""},
    "of negative width": {"WindowCenter": 500, "WindowWidth": -7},
    "whose centres and widths are at other places": {
        **{"WindowCenter": "\\550", "WindowWidth": "1024\\"},
    },
}


@pytest.mark.parametrize("window", NO_WINDOW)
def test_without_a_window_percentiles_are_taken_and_recorded(make: Make, window: str) -> None:
    found, steps = shares(make(COUNTING, **NO_WINDOW[window]), FILE)
    assert found == pytest.approx(np.clip((COUNTING[0] - 4.0) / 990, 0, 1), abs=1e-6)
    assert "percentiles 0.5 and 99.5, since the file has no window: 4 to 994" in steps


def test_percentiles_do_not_count_padding(make: Make) -> None:
    padded = np.concatenate([COUNTING, np.full((20, 100), 60000, np.uint16)])
    reading = DicomReading(voi="percentile")
    found, steps = shares(make(padded, PixelPaddingValue=60000, **FULL_WINDOW), reading)
    assert found[50] == pytest.approx(46 / 990)
    assert steps[-2:] == ("percentiles 0.5 and 99.5: 4 to 994", "padding painted black")


def test_a_large_signed_padding_value_is_the_pixel_that_it_is_stored_as(make: Make) -> None:
    pixels = np.array([[-2000, 0, 1000]], np.int16)
    data = make(pixels, PixelPaddingValue=-2000, PhotometricInterpretation="MONOCHROME1")
    found, _ = shares(data, ALL)
    assert found[0] == 0.0


def test_big_endian_gives_the_same_values(make: Make) -> None:
    big = make(COUNTING, syntax="1.2.840.10008.1.2.2")
    assert shares(big, ALL)[0] == shares(make(COUNTING), ALL)[0]


def test_every_step_is_recorded(make: Make) -> None:
    elements = {
        **{"RescaleSlope": 2, "RescaleIntercept": -10, "PhotometricInterpretation": "MONOCHROME1"},
        **{"WindowCenter": 100, "WindowWidth": 50, "WindowCenterWidthExplanation": "LUNG"},
        **{"PixelPaddingValue": 0, "PixelSpacing": [0.2, 0.1], "ImageType": ["DERIVED", "PRIMARY"]},
    }
    assert shares(make(EIGHT, **elements), FILE)[1] == (
        "DICOM, uncompressed",
        "the file calls it derived",
        "rescaled by 2 and -10",
        "window 100 / 50 'LUNG'",
        "inverted, since zero is white",
        "padding painted black",
        "pixels are not square: rows 0.2 apart, columns 0.1",
    )


def test_a_window_has_the_name_at_its_own_place(make: Make) -> None:
    elements = {"WindowCenter": "\\550", "WindowWidth": "1024\\300"}
    names = {"WindowCenterWidthExplanation": ["WIDE", "BONE"]}
    assert "window 550 / 300 'BONE'" in shares(make(EIGHT, **elements, **names), FILE)[1]


def test_a_slope_and_an_intercept_at_other_places_are_no_pair(make: Make) -> None:
    elements = {"RescaleSlope": "2\\", "RescaleIntercept": "\\5"}
    assert shares(make(EIGHT, **elements), ALL)[1][1:] == ("full range: 0 to 255",)


def test_contradicting_polarity_and_unknown_functions_are_noted(make: Make) -> None:
    elements = {**FULL_WINDOW, "VOILUTFunction": "CUBIC", "PresentationLUTShape": "INVERSE"}
    steps = shares(make(EIGHT, **elements), FILE)[1]
    assert "window 128 / 256 (function 'CUBIC' is not known)" in steps
    assert "PresentationLUTShape INVERSE contradict" in steps[-1]


@pytest.mark.parametrize(
    "elements",
    [
        {"ModalityLUTSequence": table(0, [1, 2], 3)},
        {"RescaleSlope": 0, "RescaleIntercept": 5},
    ],
)
def test_impossible_tables_and_slopes_are_refused(make: Make, elements: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"damaged lookup table|RescaleSlope of 0"):
        read_dicom(make(EIGHT, **elements), FILE)
