"""The table that is seen while a benchmark runs."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from squid.benchmark.runner import JobState, Status
from squid.cli.printing import escaped
from squid.evaluation.percent import percent

MARKS: dict[Status, str] = {
    "waiting": "[dim]waiting[/]",
    "running": "[bold blue]running[/]",
    "done": "[green]done[/]",
    "failed": "[bold red]failed[/]",
}


class LiveTable:
    """Shows how far every job is; without a terminal only at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, states: Sequence[JobState]) -> None:
        self._live.update(state_table(states), refresh=True)


def state_table(states: Sequence[JobState]) -> Table:
    done = sum(state.status in ("done", "failed") for state in states)
    name = Column("run", no_wrap=True)
    table = Table(name, "", "AUC", "seconds", "", title=f"{done} of {len(states)} runs")
    for state in states:
        table.add_row(
            state.job.name,
            MARKS[state.status],
            "" if state.auc is None else percent(state.auc),
            f"{state.seconds:.0f}" if state.began else "",
            escaped(state.note),
        )
    return table
