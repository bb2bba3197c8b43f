"""The verb that tests two runs against each other: `compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from squid.cli.options import OutputFormat
from squid.cli.printing import console, escaped, print_csv, print_json, print_line
from squid.config import Selection

if TYPE_CHECKING:
    from squid.evaluation.paired import Comparison

COLUMNS = ("images", "first", "second", "difference", "low", "high", "p")


def compare(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="An evaluated run, or a benchmark's result file.")
    ],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", help="What to compare it with, on the same images.")
    ],
    selection: Annotated[
        Selection, typer.Option(help="Which weights give the scores, of both runs.")
    ] = "final",
    format_: OutputFormat = "table",
) -> None:
    """Compare two runs by a paired test: the difference of their AUCs with its interval.

    Example: `squid compare runs/mine runs/other`
    """
    from squid.evaluation.paired import compare_runs

    found = compare_runs(run, other, selection)
    if format_ == "json":
        print_json(found.model_dump(mode="json"))
    elif format_ == "csv":
        print_csv(COLUMNS, _rows(found))
    else:
        print_line(console, f"{escaped(run)} minus {escaped(other)}, {found.images} images")
        console.print(_table(found))
        print_line(console, "paired test of DeLong: both have scored the same images")
        if not found.within:
            again = "evaluate both again to compare within strata too: squid evaluate RUN"
            print_line(console, again)


def _rows(found: "Comparison") -> list[tuple[Any, ...]]:
    """In the order of `COLUMNS`."""
    return [
        (name, one.first, one.second, *dict(one.difference).values(), one.p)
        for name, one in found.named.items()
    ]


def _table(found: "Comparison") -> Table:
    table = Table("images", "AUC", "other", "difference", "95 % interval", "p")
    for name, first, second, value, low, high, p in _rows(found):
        aucs = f"{100 * first:.1f}", f"{100 * second:.1f}", f"{100 * value:+.1f}"
        bounds = f"{100 * low:+.1f} to {100 * high:+.1f}"
        table.add_row(name, *aucs, bounds, "< 0.001" if p < 0.001 else f"{p:.3f}")
    return table
