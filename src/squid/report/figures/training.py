"""Training curves, from the lines of history.csv."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from squid.report.style import DASHES, legend, panels

Array = NDArray[np.float64]
History = Sequence[Mapping[str, str]]
"""The lines of history.csv."""

_BELOW: dict[str, Any] = {
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.22),
    "ncols": 4,
    "columnspacing": 1.2,
    "handlelength": 1.6,
}


def training_curves(history: History) -> Figure:
    """The losses of each objective and the learning rates, all on log scales."""
    groups = _objectives(history)
    figure, axes = panels(len(groups) + 1, height=3.3)
    for place, (title, columns) in zip(axes, groups.items(), strict=False):
        for column in columns:
            _line(place, *_series(history, column), label=column.partition(".")[2])
        place.set(title=title, xlabel="Epoch", ylabel="Loss")
        _log_scale(place)
        legend(place, **_BELOW)
    _rates(axes[-1], history)
    return figure


def compared_training(histories: Mapping[str, History], colours: Mapping[str, str]) -> Figure:
    """One panel per loss, a line per run that has it; the colours tell recipes apart."""
    # Losses in the order of the first run that has them, since methods differ in theirs.
    columns = list(
        dict.fromkeys(c for history in histories.values() for c in loss_columns(history))
    )
    figure, axes = panels(len(columns), height=2.7)
    for place, column in zip(axes, columns, strict=True):
        for name, history in histories.items():
            if column in loss_columns(history):
                _line(place, *_series(history, column), color=colours[name], linewidth=1.4)
        place.set(title=_readable(column), xlabel="Epoch")
        _log_scale(place)
    return figure


def loss_columns(history: History) -> list[str]:
    """Those named objective.term."""
    names = history[0] if history else ()
    return [n for n in names if "." in n and not n.startswith("rate.")]


def _objectives(history: History) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for column in loss_columns(history):
        groups.setdefault(f"Losses of the {column.partition('.')[0]}", []).append(column)
    return groups


def _rates(axes: Axes, history: History) -> None:
    rates = [column for column in history[0] if column.startswith("rate.")]
    for column, dash in zip(rates, cycle(DASHES), strict=False):  # equal rates lie on each other
        _line(axes, *_series(history, column), label=column.removeprefix("rate."), linestyle=dash)
    axes.set(title="Learning rates", xlabel="Epoch", ylabel="Rate")
    _log_scale(axes)
    legend(axes, **_BELOW)


def _series(history: History, column: str) -> tuple[Array, Array]:
    """Epochs, which count on over stages, and values: not a number where the column has none, so
    that no line leads from one stage to the next but one."""
    epochs = np.arange(1, len(history) + 1, dtype=np.float64)
    return epochs, np.array([float(row[column] or "nan") for row in history])


def _line(axes: Axes, epochs: Array, values: Array, **style: Any) -> None:
    # A line of a few points is hard to see, and one point is no line at all.
    marker = "o" if np.isfinite(values).sum() < 10 else ""
    axes.plot(epochs, values, marker=marker, markersize=4, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _log_scale(axes: Axes) -> None:
    """Symmetric where a loss may be negative, as a critic's is."""
    # The scale depends on all lines of the panel; gaps between stages do not count.
    values = np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines] or [np.ones(1)])
    values = values[np.isfinite(values)]
    if (values > 0).all():
        axes.set_yscale("log")
    else:
        axes.set_yscale("symlog", linthresh=max(float(np.abs(values).max()), 1e-12) / 1e3)


def _readable(column: str) -> str:
    objective, _, term = column.partition(".")
    return objective if objective == term else f"{objective}: {term}"
