"""The paper's tables: rows by seeds, run, resumed, summarised and set next to the paper."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from squid.benchmark.datasets import check_data
from squid.benchmark.figures import digit_sheet
from squid.benchmark.plan import Plan, plan_benchmark
from squid.benchmark.runner import Watch, read_failure, run_plan
from squid.benchmark.store import TRIVIAL_FILE, ResultStore
from squid.benchmark.summary import (
    TrivialLine,
    measure_trivial,
    read_results,
    summarise_results,
    trivial_lines,
)
from squid.benchmark.tables import BenchmarkTable
from squid.config import Device, Selection
from squid.data.digitanatomy import DigitAnatomy
from squid.errors import DataError
from squid.evaluation.record import TrivialResult, read_record
from squid.report.style import Chart

__all__ = [
    "BenchmarkTable",
    "Plan",
    "ResultStore",
    "plan_benchmark",
    "run_benchmark",
    "table_of_results",
]

_log = logging.getLogger(__name__)


def run_benchmark(
    plan: Plan,
    *,
    parallel: int = 1,
    minutes: float | None = None,
    device: Device = "auto",
    watch: Watch | None = None,
    selection: Selection | None = None,
    kept: Path | None = None,
) -> BenchmarkTable:
    """Run what is not done yet and write the tables into the plan's folder, whatever failed.

    `kept` is a flat folder that gets a file for each result as soon as there is one; what it holds
    already is not run again. After so many `minutes` the rest is left to the next call.
    """
    store = ResultStore(plan, kept)
    check_data(plan, store)
    run_plan(plan, store, parallel=parallel, minutes=minutes, device=device, watch=watch)
    failures = [
        (job.name, why) for job in plan.jobs if (why := read_failure(job.folder)) is not None
    ]
    # A curve compares settings of one method: trivial scores belong to tables of methods.
    tables = [name for name in plan.sections if plan.of(name)[0].value is None]
    trivial = [line for name in tables for line in _trivial(plan, name)]
    store.keep_trivial()
    charts = [chart for name in plan.sections for chart in _sheets(plan, name, device)]
    lines = summarise_results(list(store.results()), selection)
    table = BenchmarkTable(plan.title, lines, trivial, failures, charts)
    table.write(plan.out)
    return table


def table_of_results(
    paths: Sequence[Path], title: str = "", selection: Selection | None = None
) -> BenchmarkTable:
    """The table of kept results: nothing is trained, no image is read."""
    results, trivial = read_results(paths)
    return BenchmarkTable(title, summarise_results(results, selection), trivial)


def _trivial(plan: Plan, section: str) -> list[TrivialLine]:
    """Measured once, at the image size of most rows, and kept in the section's folder."""
    recipe = plan.of(section)[-1].recipe
    path = plan.out / section / TRIVIAL_FILE
    if path.is_file():
        return trivial_lines(read_record(TrivialResult, path))
    try:
        splits = recipe.data.load(recipe.method.size)
        if plan.jobs[0].split == "validation":
            splits = replace(splits, test=splits.validation)
        measured = measure_trivial(section, splits)
    except DataError as error:
        _log.warning("No trivial scores of %s: %s", section, error)
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(measured.model_dump_json() + "\n", encoding="utf-8")
    return trivial_lines(measured)


def _sheets(plan: Plan, section: str, device: Device) -> list[Chart]:
    jobs = plan.of(section)
    if not isinstance(jobs[0].recipe.data, DigitAnatomy):
        return []
    chart = digit_sheet(jobs, device=device)
    return [] if chart is None else [chart]
