"""The table that is seen while a benchmark runs."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from squid.benchmark.runner import Standing, Status

MARKS: dict[Status, str] = {
    "waiting": "[dim]waiting[/]",
    "running": "[bold blue]running[/]",
    "done": "[green]done[/]",
    "failed": "[bold red]failed[/]",
}


class LiveTable:
    """Redraws where every cell is; on what is no terminal, only at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, standings: Sequence[Standing]) -> None:
        self._live.update(standing_table(standings), refresh=True)


def standing_table(standings: Sequence[Standing]) -> Table:
    done = sum(standing.status in ("done", "failed") for standing in standings)
    name = Column("run", no_wrap=True)
    table = Table(name, "", "AUC", "seconds", "", title=f"{done} of {len(standings)} runs")
    for standing in standings:
        table.add_row(
            standing.cell.name,
            MARKS[standing.status],
            "" if standing.auc is None else f"{100 * standing.auc:.1f}",
            f"{standing.seconds:.0f}" if standing.began else "",
            escape(standing.words),
        )
    return table
