"""Runs the cells of a plan, several at once, and goes on when one fails."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from squid.benchmark.cell import finished, read_result
from squid.benchmark.plan import Cell, Plan
from squid.choices import Device
from squid.data.stream import cores

FAILURE = "failure.json"
LOG, ERRORS = "benchmark.log", "benchmark.err"
POLL_SECONDS = 0.2
_LAST_LINES = 30  # of an error that is kept

Status = Literal["waiting", "running", "done", "failed"]


@dataclass
class Standing:
    """Where a cell is."""

    cell: Cell
    status: Status = "waiting"
    began: float = 0.0
    ended: float = 0.0
    auc: float | None = None
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        """Spent in this call."""
        return (self.ended or time.monotonic()) - self.began if self.began else 0.0

    @property
    def words(self) -> str:
        """Of its training, or what went wrong."""
        if self.status == "failed":
            return (read_failure(self.cell.folder) or "?").strip().splitlines()[-1]
        return _last_line(self.cell.folder / LOG) if self.status == "running" else ""

    def done(self) -> None:
        """Its result is written."""
        result = read_result(self.cell.folder)
        assert result is not None
        self.status = "done"
        self.auc = result["protocols"]["last"]["paper"]["metrics"]["auc"]["value"]


Watch = Callable[[Sequence[Standing]], None]


def run_plan(
    plan: Plan, *, jobs: int = 1, device: Device = "auto", watch: Watch | None = None
) -> list[Standing]:
    """Every cell that has no result yet; what failed before is tried again."""
    standings = [Standing(cell) for cell in plan.cells]
    for standing in standings:
        if finished(standing.cell):
            standing.done()
    waiting = deque(standing for standing in standings if standing.status == "waiting")
    running: list[Standing] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.popleft(), device, threads=max(1, cores() // jobs)))
            running = [standing for standing in running if not _ended(standing)]
            if watch is not None:
                watch(standings)
            time.sleep(POLL_SECONDS)
    finally:
        _interrupt(running)
    return standings


def _start(standing: Standing, device: Device, *, threads: int) -> Standing:
    """In a process of its own, with its share of the cores unless the user says otherwise."""
    folder = standing.cell.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAILURE).unlink(missing_ok=True)
    with (folder / LOG).open("w") as log, (folder / ERRORS).open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "squid.benchmark.worker"],
            stdin=subprocess.PIPE, stdout=log, stderr=errors, text=True, start_new_session=True,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )  # fmt: skip
    assert process.stdin is not None
    with process.stdin as given:
        json.dump({"cell": standing.cell.values, "device": device}, given)
    standing.process, standing.status, standing.began = process, "running", time.monotonic()
    return standing


def _ended(standing: Standing) -> bool:
    assert standing.process is not None
    code = standing.process.poll()
    if code is None:
        return False
    standing.ended = time.monotonic()
    if code:
        standing.status = "failed"
        _record_failure(standing.cell, code)
    else:
        standing.done()
    return True


def _record_failure(cell: Cell, code: int) -> None:
    lines = (cell.folder / ERRORS).read_text(encoding="utf-8", errors="replace").splitlines()
    error = "\n".join(lines[-_LAST_LINES:]) or f"The process ended with {code}."
    failure = {"cell": cell.name, "command": cell.command, "exit": code, "error": error}
    (cell.folder / FAILURE).write_text(json.dumps(failure, indent=2) + "\n", encoding="utf-8")


def read_failure(folder: Path) -> str | None:
    """What went wrong, where something did."""
    path = folder / FAILURE
    return json.loads(path.read_text(encoding="utf-8"))["error"] if path.is_file() else None


def _interrupt(running: Sequence[Standing]) -> None:
    """Lets trainings save, so that the next call goes on with them."""
    for standing in running:
        if standing.process is not None:
            standing.process.send_signal(signal.SIGINT)
    for standing in running:
        if standing.process is not None:
            standing.process.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""
