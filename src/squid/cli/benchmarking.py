"""The verb that runs many trainings: `benchmark`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from squid.cli.options import INTERRUPTED, DeviceOption, set_option
from squid.cli.printing import console, errors, escaped, print_line
from squid.config import Device, EvaluatedSplit, Selection
from squid.errors import ConfigError

if TYPE_CHECKING:
    from squid.benchmark import BenchmarkTable, Plan, ResultStore

Chosen = Annotated[str | None, typer.Option(metavar="A,B", help="Only these, by name.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many; default as the recipe says.")
]
FirstSeed = Annotated[int, typer.Option(min=0, metavar="N", help="Seeds count up from it.")]
Parallel = Annotated[int, typer.Option(min=1, metavar="N", help="Jobs that run at the same time.")]
Settings = Annotated[list[str] | None, set_option("Override a recipe key of every row.")]
SelectionOption = Annotated[
    Selection | None,
    typer.Option(
        help="Which weights give the scores: those at the end of training, the epoch that "
        "labelled validation images choose, or the mean over all snapshots; default a line for "
        "each.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="N",
        help="Start no job after so many minutes and save those that run; the same command goes "
        "on. For a rented machine.",
    ),
]
Results = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep a JSON file for each result there, as soon as there is one; a job whose result "
        "is there already is not run.",
    ),
]


def benchmark(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RECIPE", help="A benchmark file; result files with --table."),
    ],
    table: Annotated[
        bool, typer.Option("--table", help="Make the table of results; nothing is trained.")
    ] = False,
    list_: Annotated[
        bool,
        typer.Option("--list", help="Show the rows, seeds and expected time; nothing is trained."),
    ] = False,
    sections: Chosen = None,
    rows: Chosen = None,
    seeds: Seeds = None,
    first_seed: FirstSeed = 0,
    set_: Settings = None,
    split: Annotated[
        EvaluatedSplit,
        typer.Option(help="Images to evaluate; choose between settings on validation images."),
    ] = "test",
    parallel: Parallel = 1,
    minutes: Minutes = None,
    device: DeviceOption = "auto",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of runs and tables; default runs/benchmark."),
    ] = None,
    results: Results = None,
    selection: SelectionOption = None,
) -> None:
    """Run methods by seeds and compare them with the paper; finished jobs are skipped.

    With --table the table is made from result files, or folders of them.

    Example: `squid benchmark recipes/benchmark.toml --sections zhanglab --rows vae --seeds 1`
    """
    from squid.benchmark import plan_benchmark, table_of_results

    if table:
        _print(table_of_results(paths, selection=selection), out)
        return
    if len(paths) != 1:
        raise ConfigError("Give one benchmark file, or --table with result files.")
    plan = plan_benchmark(
        paths[0],
        out or Path("runs/benchmark"),
        sections=_names(sections),
        rows=_names(rows),
        seeds=seeds,
        first_seed=first_seed,
        settings=set_ or [],
        split=split,
    )
    if list_:
        show_plan(plan, results, parallel)
        return
    _run(plan, parallel=parallel, minutes=minutes, device=device, kept=results, selection=selection)


def show_plan(plan: "Plan", kept: Path | None, parallel: int) -> None:
    """Rows, seeds and expected time of a benchmark, what is done already, and missing data."""
    from squid.benchmark import ResultStore
    from squid.benchmark.datasets import find, sections_without_data

    store = ResultStore(plan, kept)
    missing = sections_without_data(plan, store, find)
    # Names are folded: rows of one method differ in their last letters.
    names = (Column(name, overflow="fold") for name in ("section", "row", "seeds"))
    table = Table(*names, "done", "minutes", title=plan.title)
    total, unknown = 0.0, 0
    for section in plan.sections:
        seconds, without = _add_section(table, plan, store, section)
        # No zero where no row's length is known.
        known = [f"{seconds / 60:.0f}"] if seconds or not without else []
        left = " + ".join(known + ["?"] * bool(without))
        data = "[red]no data[/]" if section in missing else ""
        table.add_row(section, "[bold]left[/]", "", data, f"[bold]{left}[/]")
        table.add_section()
        total, unknown = total + seconds, unknown + without
    console.print(table)
    for reason in dict.fromkeys(missing.values()):
        sections = ", ".join(name for name, why in missing.items() if why == reason)
        print_line(console, f"[red]no data[/] for {sections}: {escaped(reason)}")
    about = f"about {total / 60 / parallel:.0f} minutes left on one NVIDIA H200"
    about += f" with {parallel} jobs at once" if parallel > 1 else ""
    words = [about] if total else []
    words += [f"{unknown} rows of unknown length"] if unknown else []
    print_line(console, ", and ".join(words) or "nothing is left to run")


def _add_section(
    table: Table, plan: "Plan", store: "ResultStore", section: str
) -> tuple[float, int]:
    """Adds a section's rows: expected seconds of what is left, and rows of unknown length."""
    from squid.benchmark.timing import expected_seconds

    left, unknown = 0.0, 0
    placed = plan.of(section)
    for row in dict.fromkeys(job.row for job in placed):
        jobs = [job for job in placed if job.row == row]
        # A job of several sections is run in the first of them, and counts there.
        own = [job for job in plan.jobs if (job.section, job.row) == (section, row)]
        todo = sum(store.find(job) is None for job in own)
        done = sum(store.find(job) is not None for job in jobs)
        seconds = expected_seconds(jobs[0])
        left += (seconds or 0.0) * todo
        unknown += seconds is None and todo > 0
        minutes = "?" if seconds is None else f"{todo} x {seconds / 60:.1f}"
        seeds = ", ".join(str(job.recipe.seed) for job in jobs)
        table.add_row(section, row, seeds, f"{done} of {len(jobs)}", minutes)
    return left, unknown


def _run(
    plan: "Plan",
    *,
    parallel: int,
    minutes: float | None,
    device: Device,
    kept: Path | None,
    selection: Selection | None,
) -> None:
    from squid.benchmark import ResultStore, run_benchmark
    from squid.cli.live_table import LiveTable

    try:
        with LiveTable(errors) as watch:
            table = run_benchmark(
                plan,
                watch=watch,
                parallel=parallel,
                minutes=minutes,
                device=device,
                kept=kept,
                selection=selection,
            )
    except KeyboardInterrupt:
        errors.print("Interrupted; the same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    _print(table, None)
    errors.print(f"Tables: {plan.out}/table.md, .csv, .json, .html", highlight=False)
    if table.failures:
        raise typer.Exit(1)
    store = ResultStore(plan, kept)
    if left := sum(store.find(job) is None for job in plan.jobs):
        errors.print(f"{left} of {len(plan.jobs)} jobs are left; the same command goes on.")


def _print(table: "BenchmarkTable", out: Path | None) -> None:
    sys.stdout.write(table.markdown())
    if out is not None:
        table.write(out)


def _names(text: str | None) -> Sequence[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
