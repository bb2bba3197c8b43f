"""Sheets of images: input, reconstruction and heatmaps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from squid.heatmaps import overlay, shared_scale
from squid.report.style import ORANGE, canvas, without_axes

Array = NDArray[np.float64]

HEATMAP_NAMES = {
    "gradcam": "Grad-CAM",
    "residual": "residual",
    "memory": "memory distance",
    "method": "heatmap",
}
"""Names of the rows of a sheet, by kind of heatmap."""

_PICTURE, _ABOVE, _ASIDE = 1.8, 0.6, 0.28  # inches: a picture with its gap, titles, row names
_SMALL: dict[str, Any] = {"fontsize": 8.5, "linespacing": 1.3}


@dataclass(frozen=True)
class Example:
    """One image of a sheet, with what a method made of it."""

    image: Array  # (h, w) in [0, 1]
    title: str
    reconstruction: Array | None = None
    heatmaps: Mapping[str, Array] = field(default_factory=dict)
    """By kind, (h, w) each."""
    cells: NDArray[np.int64] | None = None
    """DigitAnatomy: the condition of each cell; those that are not normal get an outline."""


def sheet(
    examples: Sequence[Example],
    *,
    scales: Mapping[str, tuple[float, float]] | None = None,
    columns: int = 6,
) -> Figure:
    """A column per example: input, reconstruction, and its heatmaps, laid over the input.

    `scales` lets several sheets share the scale of each kind of heatmap; otherwise it is this
    sheet's own. All images have one size.
    """
    scales = scales or heatmap_scales(examples)
    columns = min(columns, len(examples))
    # Examples beyond one row of columns continue in a band below.
    bands = [examples[start : start + columns] for start in range(0, len(examples), columns)]
    rows = len(_pictures(examples[0], scales))
    width, height = _ASIDE + _PICTURE * columns, _ABOVE + _PICTURE * rows
    figure = canvas(width, height * len(bands))
    # Places are computed by hand, since a layout engine would change the aspect of pictures.
    figure.set_layout_engine("none")
    for place, band in enumerate(bands):
        bottom = 1 - (place + 1) / len(bands)
        box = (
            _ASIDE / width,
            bottom,
            _PICTURE * len(band) / width,
            _PICTURE * rows / height / len(bands),
        )
        _band(figure.add_axes(box), band, scales)
    return figure


def _band(
    axes: Axes, examples: Sequence[Example], scales: Mapping[str, tuple[float, float]]
) -> None:
    """One mosaic, with gaps of nothing between the pictures."""
    without_axes(axes)
    pictures = [_pictures(example, scales) for example in examples]
    # One picture for the whole band: the gaps are pixels, equally wide everywhere.
    columns = [np.concatenate([_framed(x) for x in column.values()], 0) for column in pictures]
    axes.imshow(np.concatenate(columns, 1), aspect="auto")
    high, wide = (side + _gap(side) for side in examples[0].image.shape)
    for place, example in enumerate(examples):
        axes.text(
            place * wide, -0.03 * high, example.title, va="bottom", parse_math=False, **_SMALL
        )
        _outline(axes, example, place * wide)
    for place, name in enumerate(pictures[0]):
        # Names of the rows stand left of the first column only.
        middle = place * high + examples[0].image.shape[0] / 2
        axes.text(-0.04 * wide, middle, name, ha="right", va="center", rotation=90, **_SMALL)


def _framed(picture: NDArray[Any]) -> NDArray[np.float64]:
    """Gray (h, w) or RGB (h, w, 3) -> RGBA with a gap at the right and below."""
    # Overlays are bytes in RGB, inputs and reconstructions gray values in [0, 1].
    rgb = np.repeat(picture[..., None], 3, -1) if picture.ndim == 2 else picture / 255.0
    opaque = np.concatenate([rgb.clip(0, 1), np.ones((*rgb.shape[:2], 1))], -1)
    return np.pad(opaque, [(0, _gap(side)) for side in rgb.shape[:2]] + [(0, 0)])


def _gap(side: int) -> int:
    return max(1, side // 16)


def heatmap_scales(examples: Iterable[Example]) -> dict[str, tuple[float, float]]:
    """One scale per kind of heatmap, over all examples."""
    by_kind: dict[str, list[Array]] = {}
    for example in examples:
        for kind, heatmap in example.heatmaps.items():
            by_kind.setdefault(kind, []).append(heatmap)
    return {kind: shared_scale(heatmaps) for kind, heatmaps in by_kind.items()}


def _pictures(
    example: Example, scales: Mapping[str, tuple[float, float]]
) -> dict[str, NDArray[Any]]:
    """What a column shows from top to bottom."""
    made = {} if example.reconstruction is None else {"reconstruction": example.reconstruction}
    heat = {
        HEATMAP_NAMES[kind]: overlay(example.image, heatmap, scale=scales[kind])
        for kind, heatmap in example.heatmaps.items()
    }
    return {"input": example.image, **made, **heat}


def _outline(axes: Axes, example: Example, left: float) -> None:
    if example.cells is None:
        return
    # Pixel centres have whole coordinates: a cell begins half a pixel before its first one.
    count = math.isqrt(len(example.cells))
    height, width = (side / count for side in example.image.shape)
    for place in np.flatnonzero(example.cells):
        row, column = divmod(int(place), count)
        corner = left + column * width - 0.5, row * height - 0.5
        frame = Rectangle(corner, width, height, fill=False, edgecolor=ORANGE, linewidth=1.8)
        axes.add_patch(frame).set_clip_on(False)
