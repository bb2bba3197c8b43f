"""The charts of a benchmark: the AUC along what a section varies, the ROC of each row, its AUC with
and without what its score follows besides disease, and its test AUC over the training."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from squid.benchmark.summary import Line, Spread
from squid.evaluation.record import Result
from squid.methods.squid import SquidConfig
from squid.report.figures.curves import Curve, roc
from squid.report.style import (
    BLUE,
    DASHES,
    PALETTE,
    VERMILION,
    Chart,
    canvas,
    faint,
    legend,
    panels,
)

TITLE_LETTERS = 40
"""Letters of a line of a row's title."""
AXES: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "data.contamination": ("healthy training images, %", lambda share: 100 * (1 - share)),
}
"""What an axis shows in the place of a recipe key and its values: the paper's quantity."""


def steadiest(lines: Sequence[Line]) -> list[Line]:
    """One line of each row, chosen without labels: the end of training where score distillation
    makes it a mean over time, else the mean over snapshots where there are some."""
    rows: dict[str, Line] = {}
    for line in lines:
        wanted = "final" if _distilled(line) else "snapshot_mean"
        if line.selection == wanted or line.row not in rows:
            rows[line.row] = line
    return list(rows.values())


def _distilled(line: Line) -> bool:
    method = line.results[0].recipe.method
    return isinstance(method, SquidConfig) and method.target_updates > 0


# The AUC along what a section varies


def value_curve(section: str, lines: Sequence[Line]) -> Chart | None:
    """None for a section that is a table."""
    shown = [line for line in steadiest(lines) if line.value is not None]
    if not shown:
        return None
    chosen = [line for line in lines if line.selection == "best_epoch"]
    axis = shown[0].results[0].axis
    return Chart(
        name=f"values-{section}",
        alt=f"Test AUC by {axis}",
        caption=f"The test AUC by {axis}: {shown[0].selection_name} (solid), the same adjusted for "
        "sharpness (dashed), and, of one method, the epoch by labels (dotted). Bars: sample "
        "standard deviation over seeds, where there are several. Diamonds: the paper.",
        plot=partial(plot_value_curve, shown, chosen),
    )


def plot_value_curve(lines: Sequence[Line], chosen: Sequence[Line] = ()) -> Figure:
    """`chosen` are the lines of the epochs that labels chose."""
    figure = canvas(6.4, 4.2)
    axes = figure.add_subplot()
    values = sorted({line.value for line in lines if line.value is not None})
    # Values are evenly spaced, as in the paper: those of interest lie close together.
    places = {value: place for place, value in enumerate(values)}
    series = list(dict.fromkeys(line.results[0].series for line in lines))
    for name, colour in zip(series, PALETTE, strict=False):
        own = [line for line in lines if line.results[0].series == name]
        spreads = {line.value: line.measure("auc") for line in own}
        _plot_spreads(axes, places, spreads, DASHES[0], colour, name)
        _plot_spreads(axes, places, {line.value: line.adjusted for line in own}, "--", colour)
        if len(series) == 1:
            epochs = {line.value: line.measure("auc") for line in chosen}
            _plot_spreads(axes, places, epochs, ":", faint())
        paper = {line.value: line.paper.get("auc") for line in own}
        _plot_spreads(axes, places, paper, "", colour, marker="D")
    label, shown = AXES.get(axis := lines[0].results[0].axis, (axis, float))
    axes.set_xticks(range(len(values)), [f"{shown(value):g}" for value in values])
    axes.set(xlabel=label, ylabel="AUC, %")
    legend(axes, loc="best")
    return figure


def _plot_spreads(
    axes: Axes,
    places: Mapping[float, int],
    spreads: Mapping[float | None, Spread | None],
    dash: str,
    colour: str,
    label: str = "_",
    marker: str = "o",
) -> None:
    """Means with their standard deviations; values without one are left out."""
    found = sorted((places[v], s) for v, s in spreads.items() if v is not None and s is not None)
    if found:
        x, means = [place for place, _ in found], [spread.mean for _, spread in found]
        errors = [spread.std or 0.0 for _, spread in found]
        style: dict[str, Any] = {
            "linestyle": dash,
            "marker": marker,
            "color": colour,
            "label": label,
        }
        axes.errorbar(x, means, errors, markersize=4, capsize=2, elinewidth=1, **style)


# The ROC of each row


def roc_curves(section: str, lines: Sequence[Line]) -> Chart | None:
    """The paper's figure: each row's curve, of its first seed; None for a section that is a
    curve."""
    rows = [line for line in steadiest(lines) if line.value is None]
    if not rows:
        return None
    curves = [_roc_curve(line, place) for place, line in enumerate(rows)]
    return Chart(
        name=f"roc-{section}",
        alt=f"ROC curves of {', '.join(line.title for line in rows)}",
        caption="ROC of each row's first seed: mean of snapshots where there are some and scores "
        "are not distilled, else the end of training. Each point of a line is a threshold; the "
        "nearer to the upper left corner, the better.",
        plot=partial(roc, curves, beside=len(curves) > len(PALETTE)),
    )


def _roc_curve(line: Line, place: int) -> Curve:
    first = line.results[0]
    evaluation = first[line.selection]
    # Colours come round again with another dash.
    turn, colour = divmod(place, len(PALETTE))
    return Curve(
        f"{line.title}: {100 * evaluation.auc:.1f}",
        evaluation.array,
        first.evaluations.images.labels,
        PALETTE[colour],
        DASHES[turn % len(DASHES)],
    )


# Adjusted against plain AUC


def adjusted_aucs(section: str, lines: Sequence[Line]) -> Chart | None:
    """None for a section that is a curve, and for results from before the adjustment."""
    rows = [line for line in steadiest(lines) if line.value is None and line.adjusted is not None]
    if not rows:
        return None
    return Chart(
        name=f"adjusted-{section}",
        alt=f"Plain and adjusted AUC of {', '.join(line.title for line in rows)}",
        caption="Hollow: the AUC over all test images. Filled: within views where those differ, "
        "else within deciles of sharpness, where that covariate cannot help. A long line to the "
        "left is an AUC that came from how images were taken; one to the right, a score that it "
        "had hidden. Mean of snapshots where there are some and scores are not distilled, else the "
        "end of training; bars: sample standard deviation over seeds.",
        plot=partial(plot_adjusted_aucs, rows),
    )


def plot_adjusted_aucs(lines: Sequence[Line]) -> Figure:
    """One line for each row, the best adjusted AUC on top."""
    known = [(spread, line) for line in lines if (spread := line.adjusted) is not None]
    known.sort(key=lambda pair: pair[0].mean)
    figure = canvas(6.4, 0.9 + 0.26 * len(known))
    axes = figure.add_subplot()
    for place, (adjusted, line) in enumerate(known):
        plain = line.measure("auc")
        axes.plot((plain.mean, adjusted.mean), (place, place), color=faint(), linewidth=1)
        # Only the first row names its marks, for the legend.
        labels = ("all images", "adjusted") if place == 0 else ("_", "_")
        hollow: dict[str, Any] = {"markerfacecolor": "none", "label": labels[0]}
        axes.errorbar(plain.mean, place, xerr=plain.std or 0.0, **_MARK, color=BLUE, **hollow)
        axes.errorbar(
            adjusted.mean,
            place,
            xerr=adjusted.std or 0.0,
            **_MARK,
            color=VERMILION,
            label=labels[1],
        )
    axes.axvline(50, color=faint(), linewidth=1, linestyle=":")
    axes.set_yticks(range(len(known)), [fill(line.title, TITLE_LETTERS) for _, line in known])
    axes.set(xlabel="AUC, %")
    legend(axes, loc="lower right")
    return figure


_MARK: dict[str, Any] = {"marker": "o", "markersize": 5, "capsize": 2, "elinewidth": 1}


# The test AUC over a training


def auc_curves(section: str, rows: Mapping[str, Sequence[Result]]) -> Chart | None:
    """One panel per row, by its title; None where no row took snapshots."""
    curves = {title: results for title, results in rows.items() if any(r.curve for r in results)}
    if not curves:
        return None
    return Chart(
        name=f"auc-curves-{section}",
        alt=f"Test AUC by epoch of {', '.join(curves)}",
        caption="The test AUC over the epochs, a line for each seed: to see how steady scores are, "
        "never to choose by. Epochs of several members are counted on.",
        plot=partial(plot_auc_curves, curves),
        wide=True,
    )


def plot_auc_curves(rows: Mapping[str, Sequence[Result]]) -> Figure:
    figure, axes = panels(len(rows), height=3.0)
    for panel, (title, results) in zip(axes, rows.items(), strict=True):
        for result in results:
            _plot_auc_curve(panel, result)
        panel.set(title=fill(title, TITLE_LETTERS), xlabel="Epoch", ylabel="AUC, %")
        # One scale for all rows, so that their steadiness can be compared by eye.
        panel.sharey(axes[0])
    # Seeds share their colours, so the legend names one line of each kind.
    kinds = {label: line for line, label in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    legend(axes[0], handles=list(kinds.values()), loc="lower right")
    return figure


def _plot_auc_curve(axes: Axes, result: Result) -> None:
    if result.curve is None:
        return
    epochs, alone, mean = map(
        np.asarray, (result.curve.epochs, result.curve.auc, result.curve.mean_auc)
    )
    axes.plot(epochs, 100 * alone, color=faint(), linewidth=0.7, alpha=0.6, label="one epoch")
    axes.plot(epochs, 100 * mean, color=BLUE, linewidth=1.4, label="mean up to there")
    # A little right of the last epoch, where it covers none of the lines.
    end, final = 1.03 * epochs[-1], 100 * result["final"].auc
    axes.plot(end, final, "o", color=VERMILION, markersize=4, label="end of training")
