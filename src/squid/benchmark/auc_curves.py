"""How the test AUC of each row went over its training, where snapshots were taken."""

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from squid.benchmark.job import Result
from squid.report.style import BLUE, VERMILION, Chart, faint, legend, panels

TITLE = 40
"""Letters of a line above a panel."""

Rows = Mapping[str, Sequence[Result]]
"""The results of each row, by the name that a table gives it."""


def auc_curves(section: str, rows: Rows) -> Chart | None:
    """None where no row took snapshots."""
    traced = {name: found for name, results in rows.items() if (found := _traced(results))}
    if not traced:
        return None
    return Chart(
        name=f"courses-{section}",
        alt=f"Test AUC by epoch of {', '.join(traced)}",
        caption="The test AUC over the epochs, a line for each seed: to see how steady scores are, "
        "never to choose by. Epochs of several members are counted on.",
        draw=partial(draw_auc_curves, traced),
        wide=True,
    )


def _traced(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result["snapshots"]]


def draw_auc_curves(rows: Rows) -> Figure:
    figure, axes = panels(len(rows), height=3.0)
    for place, (name, results) in zip(axes, rows.items(), strict=True):
        for result in results:
            _auc_curve(place, result)
        place.set(title=fill(name, TITLE), xlabel="Epoch", ylabel="AUC, %")
        place.sharey(axes[0])
    _name_once(axes[0])
    return figure


def _auc_curve(axes: Axes, result: Result) -> None:
    trace = result["snapshots"]
    epochs, single, mean = (np.asarray(trace[key]) for key in ("epochs", "auc", "mean_auc"))
    finished = result["evaluations"]["last"]["paper"]["metrics"]["auc"]["value"]
    axes.plot(epochs, 100 * single, color=faint(), linewidth=0.7, alpha=0.6, label="one epoch")
    axes.plot(epochs, 100 * mean, color=BLUE, linewidth=1.4, label="mean up to there")
    after = 1.03 * epochs[-1]
    axes.plot(after, 100 * finished, "o", color=VERMILION, markersize=4, label="end of training")


def _name_once(axes: Axes) -> None:
    """Seeds share their colours, so one of each kind is named."""
    kinds = {label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    legend(axes, handles=list(kinds.values()), loc="lower right")
