"""Reports: one self-contained HTML page from one run, or from several to compare."""

import os
from collections.abc import Sequence
from pathlib import Path

from squid.config import Device
from squid.data.image_set import Splits
from squid.errors import ConfigError
from squid.report.comparison_page import ComparisonPage
from squid.report.run_page import RunPage
from squid.run import Run

__all__ = ["write_report"]


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    *,
    device: Device = "auto",
    splits: Splits | None = None,
) -> Path:
    """The page that was written; PNG and SVG of its figures lie in `figures` beside it.

    One run gives `report.html` in its folder, several give `comparison.html` in the folder that
    holds them. `splits` are the images of a single run, read again by its recipe unless given.
    """
    if not runs:
        raise ConfigError("A report needs at least one run folder.")
    opened = [Run.open(path) for path in runs]
    made = RunPage(opened[0], device, splits) if len(opened) == 1 else ComparisonPage(opened)
    out = out or _place(opened)
    # The page comes first: it collects the charts that are saved next to it.
    page = made.page()
    out.parent.mkdir(parents=True, exist_ok=True)
    for chart in made.charts:
        chart.save(out.parent / "figures")
    out.write_text(page, encoding="utf-8")
    return out


def _place(runs: Sequence[Run]) -> Path:
    if len(runs) == 1:
        return runs[0].path / "report.html"
    # Several runs belong to no one of their folders, so the page goes to the folder above all.
    parents = [run.path.resolve().parent for run in runs]
    return Path(os.path.commonpath(parents)) / "comparison.html"
