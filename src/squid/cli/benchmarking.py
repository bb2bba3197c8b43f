"""The verb that runs many trainings: `benchmark`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from squid.cli.options import DeviceOption
from squid.cli.printing import console, errors, show_plan
from squid.config import EvaluatedSplit, Selection
from squid.errors import ConfigError

if TYPE_CHECKING:
    from squid.benchmark import BenchmarkTable, Plan

Chosen = Annotated[str | None, typer.Option(metavar="A,B", help="Only these, by name.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many; default as the recipe says.")
]
FirstSeed = Annotated[int, typer.Option(min=0, metavar="N", help="Seeds count up from it.")]
Parallel = Annotated[int, typer.Option(min=1, metavar="N", help="Jobs that run at the same time.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key of every row."),
]
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
        show_plan(console, plan, results, parallel)
        return
    _run(plan, parallel=parallel, minutes=minutes, device=device, kept=results, selection=selection)


def _run(plan: "Plan", **options: Any) -> None:
    from squid.benchmark import ResultStore, run_benchmark
    from squid.cli.live_table import LiveTable

    try:
        with LiveTable(errors) as watch:
            table = run_benchmark(plan, watch=watch, **options)
    except KeyboardInterrupt:
        errors.print("Interrupted; the same command goes on.")
        sys.exit(130)
    _print(table, None)
    errors.print(f"Tables: {plan.out}/table.md, .csv, .json, .html", highlight=False)
    if table.failures:
        raise typer.Exit(1)
    store = ResultStore(plan, options["kept"])
    if left := sum(store.find(job) is None for job in plan.jobs):
        errors.print(f"{left} of {len(plan.jobs)} jobs are left; the same command goes on.")


def _print(table: "BenchmarkTable", out: Path | None) -> None:
    sys.stdout.write(table.markdown())
    if out is not None:
        table.write(out)


def _names(text: str | None) -> Sequence[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
