"""Progress bars: of a training, and of reading files."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from squid.train import Epoch, Monitor


class TrainingProgress(Monitor):
    """One bar per stage, with losses, speed and the time left."""

    def __init__(self, console: Console, *, shown: bool = True) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16 if console.width >= 100 else 6),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[speed]}", table_column=Column(no_wrap=True)),
            # Losses that do not fit go on in the next line; none is cut.
            TextColumn("[dim]{task.fields[losses]}", table_column=Column(overflow="fold", ratio=1)),
            console=console,
            expand=True,
            disable=not shown,
        )
        self._tasks: dict[str, TaskID] = {}
        self._updated = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def progress(self, now: Epoch) -> None:
        stage = self._tasks.get(now.stage)
        if stage is None:
            stage = self._tasks[now.stage] = self._progress.add_task(now.stage, speed="", losses="")
        # A no-break space keeps a loss and its value together.
        losses = "  ".join(f"{name}\xa0{value:.3g}" for name, value in _by_objective(now).items())
        self._progress.update(
            stage,
            total=now.epochs,
            completed=now.epoch - 1 + now.step / now.steps,
            description=f"{now.stage} {now.epoch}/{now.epochs}",
            speed=f"{now.images_per_second:.0f} images/s",
            losses=losses,
        )

    def epoch(self, done: Epoch) -> None:
        if time.monotonic() - self._updated > 0.1 or done.epoch == done.epochs:
            self._updated = time.monotonic()
            self.progress(done)


def _by_objective(now: Epoch) -> dict[str, float]:
    """The sum of each objective's terms, which is what it minimises."""
    sums: dict[str, float] = {}
    for name, value in now.losses.items():
        objective = name.partition(".")[0]
        sums[objective] = sums.get(objective, 0.0) + value
    return sums


class FileProgress:
    """A bar over files, shown only when there are enough of them to wait for."""

    FEW = 50

    def __init__(self, console: Console, what: str = "reading") -> None:
        self._progress = Progress(console=console, transient=True)
        self._what = what
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        if total < self.FEW:
            return
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=total)
        self._progress.update(self._task, completed=done)
