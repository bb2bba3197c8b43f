"""Reports: one self-contained HTML page from one run, or from several to compare."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squid.config import Device
from squid.durable import write_text
from squid.errors import ConfigError, RunError
from squid.report.comparison_page import ComparisonPage
from squid.report.run_page import RunPage
from squid.run import Run

__all__ = ["WrittenReport", "write_report"]


@dataclass(frozen=True)
class WrittenReport:
    """A page that was written."""

    path: Path
    cautions: tuple[str, ...]
    """What makes it unfit to rely on; most pages have none."""


def write_report(
    runs: Sequence[Run | Path],
    out: Path | None = None,
    *,
    device: Device = "auto",
) -> WrittenReport:
    """Write a page; PNG and SVG of its figures lie in `figures` beside it.

    One run gives `report.html` in its folder, several give `comparison.html` in the folder that
    holds them. A page with pictures is not replaced by one without.
    """
    if not runs:
        raise ConfigError("A report needs at least one run folder.")
    opened = [Run.open(path) for path in runs]
    out = out or _place(opened)
    if len(opened) == 1:
        made: RunPage | ComparisonPage = RunPage(opened[0], device)
    else:
        made = ComparisonPage(opened)
    if not made.has_pictures and _has_pictures(out):
        raise RunError(
            f"{out} has pictures, a new page would have none: {' '.join(made.cautions)} Restore "
            "the images, or name another file by --out."
        )
    # The page comes first: it collects the charts that are saved next to it.
    page = made.page()
    out.parent.mkdir(parents=True, exist_ok=True)
    for chart in made.charts:
        chart.save(out.parent / "figures")
    write_text(out, page)
    return WrittenReport(out, tuple(made.cautions))


def _has_pictures(page: Path) -> bool:
    """Whether a page is there that shows images of its run."""
    return page.is_file() and 'id="figure-most-' in page.read_text("utf-8", errors="replace")


def _place(runs: Sequence[Run]) -> Path:
    if len(runs) == 1:
        return runs[0].path / "report.html"
    # Several runs belong to no one of their folders, so the page goes to the folder above all.
    parents = [run.path.resolve().parent for run in runs]
    return Path(os.path.commonpath(parents)) / "comparison.html"
