"""ROC curves, and the scores of both classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from squid.data.image_set import ANOMALOUS, NORMAL
from squid.report.style import (
    ANOMALOUS_COLOUR,
    DASHES,
    NORMAL_COLOUR,
    PALETTE,
    canvas,
    faint,
    legend,
)

Array = NDArray[np.float64]

_BINS = 40
_LETTERS = 44  # of a line of a label


@dataclass(frozen=True)
class Curve:
    """The scores of one run, as a line of the ROC figure."""

    label: str
    scores: Array
    labels: NDArray[np.int64]
    colour: str = PALETTE[0]
    dash: str = DASHES[0]


def roc(
    curves: Sequence[Curve],
    thresholds: Mapping[str, float] | None = None,
    *,
    beside: bool = False,
) -> Figure:
    """ROC curves; operating points are those of the first one. A long legend stands `beside`."""
    figure = canvas(9.4 if beside else 5.6, 5.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=faint(), linewidth=1, linestyle=":")
    # Matplotlib leaves labels that begin with an underscore out of the legend.
    named: set[str] = set()
    for curve in curves:
        false_alarms, found, _ = roc_curve(curve.labels, curve.scores)
        # One entry for several seeds.
        label = "_" if curve.label in named else fill(curve.label, _LETTERS)
        style: dict[str, Any] = {"color": curve.colour, "linestyle": curve.dash}
        axes.plot(false_alarms, found, label=label, clip_on=False, **style)
        named.add(curve.label)
    for (name, value), marker in zip((thresholds or {}).items(), "oD", strict=False):
        x, y = _operating_point(curves[0], value)
        axes.plot(
            x, y, marker, color=ANOMALOUS_COLOUR, markersize=8, label=name, clip_on=False, zorder=3
        )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="False alarms (1 - specificity), %")
    axes.set(ylabel="Found anomalies (sensitivity), %", aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=None))
    if beside:
        figure.legend(loc="outside right center")
    else:
        legend(axes, loc="lower right")
    return figure


def _operating_point(curve: Curve, threshold: float) -> tuple[float, float]:
    flagged = curve.scores >= threshold
    share = [float(flagged[curve.labels == label].mean()) for label in (NORMAL, ANOMALOUS)]
    return share[0], share[1]


def score_histogram(
    scores: Array, labels: NDArray[np.int64], thresholds: Mapping[str, float]
) -> Figure:
    """Histograms of the scores of both classes, each as a share of its own class."""
    figure = canvas(5.6, 5.0)
    axes = figure.add_subplot()
    # Edges from both classes together, so that their bars are comparable.
    edges = np.histogram_bin_edges(scores, _BINS).tolist()
    classes = (NORMAL, "normal", NORMAL_COLOUR), (ANOMALOUS, "anomalous", ANOMALOUS_COLOUR)
    for label, name, colour in classes:
        values = scores[labels == label]
        # Shares instead of counts: classes of different size have the same area.
        weights = np.full(len(values), 1 / max(len(values), 1))
        style: dict[str, Any] = {"weights": weights, "color": colour}
        axes.hist(values, edges, alpha=0.4, label=f"{name} ({len(values)})", **style)
        axes.hist(values, edges, histtype="step", linewidth=1.4, **style)
    for (name, value), dash in zip(thresholds.items(), DASHES[1:], strict=False):
        axes.axvline(value, color=axes.xaxis.label.get_color(), linestyle=dash, label=name)
    axes.set(xlabel="Score (higher = more anomalous)", ylabel="Share of the class, %")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=None))
    axes.grid(visible=False, axis="x")
    legend(axes, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
    return figure
