"""Stored values as gray: the grayscale pipeline of the standard (DICOM PS3.3 C.11).

stored -> modality -> value of interest -> polarity -> padding. Each step is a function of the
stored value alone, so it is computed for each value that can be stored, not for each pixel.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from squid.data.dicom.elements import Elements
from squid.data.dicom.header import Layout
from squid.data.dicom.pixels import Stored
from squid.data.dicom.tags import Tag
from squid.data.levels import ROWS, Shades
from squid.data.reading import DicomReading
from squid.errors import DataError

Values = NDArray[np.float64]

PERCENTILES = 0.005, 0.995
"""Shares of the pixels that are black or darker, and darker than white."""
MAX_ENTRIES = 65_536
LUT_BITS = range(8, 17)


@dataclass(frozen=True)
class Curve:
    """A value for each that can be stored, and what was done to get there."""

    values: Values
    """(n,)"""
    low: float
    """The least value that is possible."""
    high: float
    """The largest."""
    steps: tuple[str, ...] = ()


class Window(NamedTuple):
    """Which values a file asks to see."""

    centre: float
    width: float
    name: str
    """What the file calls it; '' where it does not."""


def render(
    stored: Stored, layout: Layout, dataset: Elements, reading: DicomReading
) -> tuple[Shades, tuple[str, ...]]:
    """The share of white of each stored value, and the steps."""
    padded = _padding(stored.values, layout, dataset)
    curve = _modality(stored.values, layout, dataset)
    curve = _values_of_interest(curve, stored, padded, dataset, reading)
    shares, steps = curve.values, list(curve.steps)
    if inverted := _is_inverted(layout, dataset):
        shares = 1.0 - shares
        steps.append(inverted)
    if padded.any():
        shares = np.where(padded, 0.0, shares)
        steps.append("padding painted black")
    return Shades(stored.patterns, shares.astype(np.float32)), tuple(steps)


def _padding(values: Values, layout: Layout, dataset: Elements) -> NDArray[np.bool_]:
    """(n,) which stored values mean that nothing was measured."""
    limits = [
        layout.sign(words[0])
        for tag in (Tag.PixelPaddingValue, Tag.PixelPaddingRangeLimit)
        if (words := dataset.words(tag))
    ]
    if Tag.PixelPaddingValue not in dataset:
        return np.zeros(values.shape, dtype=bool)
    padded: NDArray[np.bool_] = (values >= min(limits)) & (values <= max(limits))
    return padded


def _modality(values: Values, layout: Layout, dataset: Elements) -> Curve:
    """Stored values in units of the modality: by a table, or by a slope and an intercept."""
    if (table := dataset.item(Tag.ModalityLUTSequence)) is not None:
        entries, first, bits = _table(table, layout)
        return Curve(_look_up(entries, values - first), 0.0, 2.0**bits - 1, ("modality LUT",))
    pairs = dataset.pairs(Tag.RescaleSlope, Tag.RescaleIntercept)
    _, slope, intercept = pairs[0] if pairs else (0, 1.0, 0.0)
    low, high = layout.range
    if (slope, intercept) == (1.0, 0.0):
        return Curve(values, low, high)
    if not slope or abs(slope) > 1e9 or abs(intercept) > 1e12:
        raise DataError(f"has a RescaleSlope of {slope:g}; export it again.")
    low, high = sorted(slope * end + intercept for end in (low, high))
    step = f"rescaled by {slope:g} and {intercept:+g}"
    return Curve(slope * values + intercept, low, high, (step,))


def _values_of_interest(
    curve: Curve,
    stored: Stored,
    padded: NDArray[np.bool_],
    dataset: Elements,
    reading: DicomReading,
) -> Curve:
    """Shares from 0 to 1 as the recipe asks."""
    if reading.voi == "full":
        return _stretch(curve, curve.low, curve.high, "full range")
    why = ""
    if reading.voi == "file":
        if (table := dataset.item(Tag.VOILUTSequence)) is not None:
            return _by_table(curve, table, dataset)
        if (window := _window(dataset)) is not None:
            return _by_window(curve, window, dataset)
        why = ", since the file has no window"
    low, high = _percentiles(curve.values, stored, padded)
    step = f"percentiles {100 * PERCENTILES[0]:g} and {100 * PERCENTILES[1]:g}"
    return _stretch(curve, low, high, f"{step}{why}")


def _stretch(curve: Curve, low: float, high: float, step: str) -> Curve:
    """`low` black and `high` white."""
    span = high - low if high > low else 1.0
    shares = np.clip((curve.values - low) / span, 0.0, 1.0)
    return _shares(curve, shares, f"{step}: {low:g} to {high:g}")


def _shares(curve: Curve, shares: Values, step: str) -> Curve:
    return replace(curve, values=shares, low=0.0, high=1.0, steps=(*curve.steps, step))


def _window(dataset: Elements) -> Window | None:
    """The first window of the file that is one; None where there is none."""
    names = dataset.texts(Tag.WindowCenterWidthExplanation)
    for place, centre, width in dataset.pairs(Tag.WindowCenter, Tag.WindowWidth):
        if width > 0.0:
            return Window(centre, width, names[place] if place < len(names) else "")
    return None


def _by_window(curve: Curve, window: Window, dataset: Elements) -> Curve:
    """The three functions of PS3.3 C.11.2.1.2 and C.11.2.1.3."""
    centre, width, name = window
    function = dataset.text(Tag.VOILUTFunction).upper() or "LINEAR"
    step = f"window {centre:g} / {width:g}"
    if name:
        step += f" '{name[:32]}'"
    if function == "SIGMOID":
        exponent = np.clip(-4.0 * (curve.values - centre) / width, -700.0, 700.0)
        return _shares(curve, 1.0 / (1.0 + np.exp(exponent)), f"{step}, sigmoid")
    # A LINEAR window counts whole values; one of less than 1 can only be meant exactly.
    if function == "LINEAR_EXACT" or width < 1.0:
        return _ramp(curve, centre, width, f"{step}, exact")
    known = "" if function == "LINEAR" else f" (function '{function[:16]}' is not known)"
    return _ramp(curve, centre - 0.5, width - 1.0, f"{step}{known}")


def _ramp(curve: Curve, centre: float, width: float, step: str) -> Curve:
    """From black to white over `width`; a step where that is 0."""
    if width == 0.0:
        return _shares(curve, (curve.values > centre).astype(np.float64), step)
    shares = np.clip((curve.values - centre) / width + 0.5, 0.0, 1.0)
    return _shares(curve, shares, step)


def _by_table(curve: Curve, table: Elements, dataset: Elements) -> Curve:
    """The first table of the file's VOI LUT Sequence."""
    entries, first, bits = _table(table, None)
    if first > 32767 and curve.low < 0:
        first -= 65536  # it is signed where values are
    name = table.text(Tag.LUTExplanation)
    shares = _look_up(entries, np.rint(curve.values) - first) / (2.0**bits - 1)
    step = f"VOI LUT '{name[:32]}'" if name else "VOI LUT"
    return _shares(curve, np.clip(shares, 0.0, 1.0), step)


def _table(item: Elements, layout: Layout | None) -> tuple[Values, int, int]:
    """The entries of a table, the first value that it maps, and the bits of an entry."""
    described = item.words(Tag.LUTDescriptor)
    if len(described) != 3 or described[2] not in LUT_BITS:
        raise DataError("has a damaged lookup table; export it again.")
    count, first, bits = described[0] or MAX_ENTRIES, described[1], described[2]
    data = item.found[Tag.LUTData].value if Tag.LUTData in item else memoryview(b"")
    if len(data) >= 2 * count:
        entries = np.frombuffer(data, f"{item.encoding.order}u2", count)
    elif len(data) in (count, count + 1):  # one byte each, and one that makes them even
        entries = np.frombuffer(data, np.uint8, count)
    else:
        raise DataError("has a lookup table that is cut short; export it again.")
    if layout is not None and layout.signed:
        first -= (first >> 15) << 16
    return entries.astype(np.float64), first, bits


def _look_up(entries: Values, places: Values) -> Values:
    """The entry of each value; the first and the last serve those outside."""
    found: Values = entries[np.clip(places, 0, len(entries) - 1).astype(np.int64)]
    return found


def _percentiles(values: Values, stored: Stored, padded: NDArray[np.bool_]) -> tuple[float, float]:
    """The values below which `PERCENTILES` of the pixels that are no padding lie."""
    counts = np.zeros(len(values), np.int64)
    for start in range(0, len(stored.patterns), ROWS):
        rows = stored.patterns[start : start + ROWS]
        counts += np.bincount(rows.ravel(), minlength=len(values))
    counts[padded] = 0
    if not counts.any():
        return 0.0, 0.0
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(counts[order]) / counts.sum()
    low, high = (values[order][np.searchsorted(shares, share)] for share in PERCENTILES)
    return float(low), float(high)


def _is_inverted(layout: Layout, dataset: Elements) -> str:
    """The step that inverts, '' where none does. It comes last and once.

    MONOCHROME1 and a PresentationLUTShape of INVERSE say the same: the standard demands both
    together in DX and MG (PS3.3 C.8.11.3.1.2), so an image with both is inverted once.
    """
    shape = dataset.text(Tag.PresentationLUTShape).upper()
    zero_is_white = layout.photometric == "MONOCHROME1"
    if not zero_is_white and shape != "INVERSE":
        return ""
    step = "inverted, since zero is white"
    if zero_is_white == (shape == "INVERSE") or not shape:
        return step
    return f"{step} ({layout.photometric} with PresentationLUTShape {shape} contradict each other)"
