"""The figures of a report: sheets of images, ROC, scores of both classes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from squid.data.image_set import ANOMALOUS, NORMAL
from squid.heatmaps import overlay, shared_scale
from squid.report.style import (
    ANOMALOUS_COLOUR,
    DASHES,
    NORMAL_COLOUR,
    ORANGE,
    PALETTE,
    canvas,
    faint,
    legend,
    without_axes,
)

Array = NDArray[np.float64]

HEATMAP_NAMES = {
    "gradcam": "Grad-CAM",
    "residual": "residual",
    "memory": "memory distance",
    "method": "heatmap",
}
"""What the rows of a sheet are called, by the kinds of `squid.explain`."""

_BINS = 40
_PICTURE, _ABOVE, _ASIDE = 1.42, 0.6, 0.28  # inches: a picture with its gap, titles, row names
_SMALL: dict[str, Any] = {"fontsize": 8, "linespacing": 1.3}


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
    bands = [examples[start : start + columns] for start in range(0, len(examples), columns)]
    rows = len(_pictures(examples[0], scales))
    width, height = _ASIDE + _PICTURE * columns, _ABOVE + _PICTURE * rows
    figure = canvas(width, height * len(bands))
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
    columns = [np.concatenate([_framed(x) for x in column.values()], 0) for column in pictures]
    axes.imshow(np.concatenate(columns, 1), aspect="auto")
    high, wide = (side + _gap(side) for side in examples[0].image.shape)
    for place, example in enumerate(examples):
        axes.text(
            place * wide, -0.03 * high, example.title, va="bottom", parse_math=False, **_SMALL
        )
        _outline(axes, example, place * wide)
    for place, name in enumerate(pictures[0]):
        middle = place * high + examples[0].image.shape[0] / 2
        axes.text(-0.04 * wide, middle, name, ha="right", va="center", rotation=90, **_SMALL)


def _framed(picture: NDArray[Any]) -> NDArray[np.float64]:
    """Gray (h, w) or RGB (h, w, 3) -> RGBA with a gap at the right and below."""
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
    drawn = {} if example.reconstruction is None else {"reconstruction": example.reconstruction}
    heat = {
        HEATMAP_NAMES[kind]: overlay(example.image, heatmap, scale=scales[kind])
        for kind, heatmap in example.heatmaps.items()
    }
    return {"input": example.image, **drawn, **heat}


def _outline(axes: Axes, example: Example, left: float) -> None:
    if example.cells is None:
        return
    count = math.isqrt(len(example.cells))
    height, width = (side / count for side in example.image.shape)
    for place in np.flatnonzero(example.cells):
        row, column = divmod(int(place), count)
        corner = left + column * width - 0.5, row * height - 0.5
        frame = Rectangle(corner, width, height, fill=False, edgecolor=ORANGE, linewidth=1.8)
        axes.add_patch(frame).set_clip_on(False)


@dataclass(frozen=True)
class Curve:
    """The scores of one run, as a line of the ROC figure."""

    label: str
    scores: Array
    labels: NDArray[np.int64]
    colour: str = PALETTE[0]


def roc(curves: Sequence[Curve], thresholds: Mapping[str, float] | None = None) -> Figure:
    """ROC curves; operating points are those of the first one."""
    figure = canvas(5.6, 5.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=faint(), linewidth=1, linestyle=":")
    named: set[str] = set()
    for curve in curves:
        false_alarms, found, _ = roc_curve(curve.labels, curve.scores)
        label = curve.label if curve.label not in named else "_"  # one entry for several seeds
        axes.plot(false_alarms, found, color=curve.colour, label=label, clip_on=False)
        named.add(curve.label)
    for (name, value), marker in zip((thresholds or {}).items(), "oD", strict=False):
        x, y = _operating_point(curves[0], value)
        axes.plot(
            x, y, marker, color=ANOMALOUS_COLOUR, markersize=8, label=name, clip_on=False, zorder=3
        )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="False alarms (1 - specificity)")
    axes.set(ylabel="Found anomalies (sensitivity)", aspect="equal")
    legend(axes, loc="lower right")
    return figure


def _operating_point(curve: Curve, threshold: float) -> tuple[float, float]:
    called = curve.scores >= threshold
    share = [float(called[curve.labels == label].mean()) for label in (NORMAL, ANOMALOUS)]
    return share[0], share[1]


def score_histogram(
    scores: Array, labels: NDArray[np.int64], thresholds: Mapping[str, float]
) -> Figure:
    """How the scores of both classes lie, each as a share of its own class."""
    figure = canvas(6.4, 3.6)
    axes = figure.add_subplot()
    edges = np.histogram_bin_edges(scores, _BINS).tolist()
    classes = (NORMAL, "normal", NORMAL_COLOUR), (ANOMALOUS, "anomalous", ANOMALOUS_COLOUR)
    for label, name, colour in classes:
        values = scores[labels == label]
        weights = np.full(len(values), 1 / max(len(values), 1))
        style: dict[str, Any] = {"weights": weights, "color": colour}
        axes.hist(values, edges, alpha=0.4, label=f"{name} ({len(values)})", **style)
        axes.hist(values, edges, histtype="step", linewidth=1.4, **style)
    for (name, value), dash in zip(thresholds.items(), DASHES[1:], strict=False):
        axes.axvline(value, color=axes.xaxis.label.get_color(), linestyle=dash, label=name)
    axes.set(xlabel="Score (higher = more anomalous)", ylabel="Share of the class")
    axes.grid(visible=False, axis="x")
    legend(axes, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
    return figure
