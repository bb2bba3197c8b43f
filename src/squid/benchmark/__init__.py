"""The paper's tables: rows by seeds, run, resumed, put together and set beside the paper."""

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from squid.benchmark.cell import RESULT, read_result
from squid.benchmark.digits import digit_sheet
from squid.benchmark.plan import Plan, plan_ablation, plan_benchmark
from squid.benchmark.runner import Watch, read_failure, run_plan
from squid.benchmark.summary import (
    CONTROLS,
    Control,
    measure_controls,
    read_controls,
    read_results,
    summarise_results,
)
from squid.benchmark.tables import BenchmarkTable
from squid.choices import Device, Protocol
from squid.data.digitanatomy import DigitAnatomy
from squid.errors import DataError
from squid.report.style import Chart

__all__ = [
    "BenchmarkTable",
    "Plan",
    "keep_results",
    "plan_ablation",
    "plan_benchmark",
    "run_benchmark",
    "table_of_results",
]

_log = logging.getLogger(__name__)


def run_benchmark(
    plan: Plan,
    *,
    jobs: int = 1,
    device: Device = "auto",
    watch: Watch | None = None,
    protocol: Protocol | None = None,
) -> BenchmarkTable:
    """Run what is not done yet and write the tables into the plan's folder, whatever failed."""
    run_plan(plan, jobs=jobs, device=device, watch=watch)
    results = [found for cell in plan.cells if (found := read_result(cell.folder)) is not None]
    failures = [
        (cell.name, why) for cell in plan.cells if (why := read_failure(cell.folder)) is not None
    ]
    controls = [control for name in plan.sections for control in _controls(plan, name)]
    charts = [chart for name in plan.sections for chart in _sheets(plan, name, device)]
    lines = summarise_results(results, protocol)
    table = BenchmarkTable(plan.title, lines, controls, failures, charts)
    table.write(plan.out)
    return table


def table_of_results(
    paths: Sequence[Path], title: str = "", protocol: Protocol | None = None
) -> BenchmarkTable:
    """The table of results that were kept: nothing is trained, no image is read."""
    results, controls = read_results(paths)
    return BenchmarkTable(title, summarise_results(results, protocol), controls)


def keep_results(plan: Plan, folder: Path) -> None:
    """Copies the results of a plan's cells, and its controls, into one flat folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for cell in plan.cells:
        if (cell.folder / RESULT).is_file():
            name = cell.name.replace("/", "-")
            shutil.copyfile(cell.folder / RESULT, folder / f"{name}.json")
    for section in plan.sections:
        if (plan.out / section / CONTROLS).is_file():
            shutil.copyfile(plan.out / section / CONTROLS, folder / f"{section}-{CONTROLS}")


def _controls(plan: Plan, section: str) -> list[Control]:
    """Measured once, and kept beside the section's runs. They see what most rows see."""
    recipe = plan.of(section)[-1].recipe
    path = plan.out / section / CONTROLS
    if path.is_file():
        return read_controls(json.loads(path.read_text(encoding="utf-8")))
    try:
        measured = measure_controls(section, recipe.data.load(recipe.method.size))
    except DataError as error:
        _log.warning("No controls of %s: %s", section, error)
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(measured) + "\n", encoding="utf-8")
    return read_controls(measured)


def _sheets(plan: Plan, section: str, device: Device) -> list[Chart]:
    cells = plan.of(section)
    if not isinstance(cells[0].recipe.data, DigitAnatomy):
        return []
    chart = digit_sheet(cells, device=device)
    return [] if chart is None else [chart]
