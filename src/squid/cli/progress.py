"""Progress bars: of a training, and of reading files."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from squid.train import Epoch, Monitor

LINE_SECONDS = 60
"""Between lines where standard error is no terminal."""


class TrainingProgress(Monitor):
    """One bar per stage, with losses, speed and the time left.

    Where nobody looks, as in the log of a batch job, a line a minute and one for each stage.
    """

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
            disable=not shown or not console.is_terminal,
        )
        self._console, self._shown = console, shown
        self._tasks: dict[str, TaskID] = {}
        self._updated = time.monotonic()
        """When something was shown last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def progress(self, now: Epoch) -> None:
        if not self._console.is_terminal:
            self._print_line(now, ended=False)
            return
        stage = self._tasks.get(now.stage)
        if stage is None:
            # Only now, so that an error before the first step stands alone.
            self._progress.start()
            stage = self._tasks[now.stage] = self._progress.add_task(now.stage, speed="", losses="")
        self._progress.update(
            stage,
            total=now.epochs,
            completed=now.epoch - 1 + now.step / now.steps,
            description=f"{now.stage} {now.epoch}/{now.epochs}",
            speed=_speed(now),
            losses=_losses(now),
        )

    def _print_line(self, now: Epoch, *, ended: bool) -> None:
        if self._shown and (ended or time.monotonic() - self._updated > LINE_SECONDS):
            self._updated = time.monotonic()
            line = f"{now.stage} {now.epoch}/{now.epochs}  {_speed(now)}  {_losses(now)}"
            self._console.print(line, soft_wrap=True, highlight=False)

    def epoch(self, done: Epoch) -> None:
        if not self._console.is_terminal:
            self._print_line(done, ended=done.epoch == done.epochs)
        elif (
            done.stage not in self._tasks
            or done.epoch == done.epochs
            or time.monotonic() - self._updated > 0.1
        ):
            self._updated = time.monotonic()
            self.progress(done)


def _speed(now: Epoch) -> str:
    return f"{now.images_per_second:.0f} images/s"


def _losses(now: Epoch) -> str:
    # A no-break space keeps a loss and its value together.
    return "  ".join(f"{name}\xa0{value:.3g}" for name, value in _by_objective(now).items())


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
