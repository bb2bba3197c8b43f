"""Runs the jobs of a plan, several in parallel, and goes on when one fails."""

import json
import math
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

from squid.benchmark.plan import Job, Plan
from squid.benchmark.store import ResultStore
from squid.config import Device
from squid.data.decode import cores
from squid.evaluation.record import Result

FAILURE = "failure.json"
LOG, ERRORS = "benchmark.log", "benchmark.err"
POLL_SECONDS = 0.2
SAVING_SECONDS = 60.0
"""How long an interrupted job may take to save its training before it is killed."""
_LAST_LINES = 30  # of an error that is kept

Status = Literal["waiting", "running", "done", "failed"]


@dataclass
class JobState:
    """How far a job is."""

    job: Job
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
    def note(self) -> str:
        """Where its training is, or what went wrong."""
        if self.status == "failed":
            return (read_failure(self.job.folder) or "?").strip().splitlines()[-1]
        return _last_line(self.job.folder / LOG) if self.status == "running" else ""

    def done(self, result: Result) -> None:
        """Called once there is its result."""
        self.status = "done"
        self.auc = result["final"].auc


Watch = Callable[[Sequence[JobState]], None]


def run_plan(
    plan: Plan,
    store: ResultStore,
    *,
    parallel: int = 1,
    minutes: float | None = None,
    device: Device = "auto",
    watch: Watch | None = None,
) -> list[JobState]:
    """Run every job that has no result yet; what failed before is tried again. After so many
    `minutes` no job is started, and those that run save their trainings for the next call."""
    end = time.monotonic() + 60 * minutes if minutes is not None else math.inf
    states = [JobState(job) for job in plan.jobs]
    # Results of earlier calls count, so that an interrupted benchmark goes on.
    for state in states:
        if (result := store.find(state.job)) is not None:
            state.done(result)
            store.keep(state.job)
    waiting = deque(state for state in states if state.status == "waiting")
    running: list[JobState] = []
    try:
        # Filled up to `parallel`, then looked at several times a second.
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < parallel:
                running.append(
                    _start(waiting.popleft(), device, threads=max(1, cores() // parallel))
                )
            running = [state for state in running if not _ended(state, store)]
            if watch is not None:
                watch(states)
            time.sleep(POLL_SECONDS)
    finally:
        # Also when the user interrupts: no job may outlive this call.
        _interrupt(running)
    for state in running:
        # One may have come to its end meanwhile; the next call goes on with the others.
        if state.process is not None and state.process.poll() == 0:
            state.done(store.add(state.job))
        else:
            state.status = "waiting"
    return states


def _start(state: JobState, device: Device, *, threads: int) -> JobState:
    """In a process of its own, with its share of the cores unless the user says otherwise."""
    folder = state.job.folder
    folder.mkdir(parents=True, exist_ok=True)
    # The failure of an earlier trial is past once the job is tried again.
    (folder / FAILURE).unlink(missing_ok=True)
    with (folder / LOG).open("w") as log, (folder / ERRORS).open("w") as errors:
        # A session of its own: an interrupt from the keyboard reaches this process only.
        process = subprocess.Popen(
            [sys.executable, "-m", "squid.benchmark.worker"],
            stdin=subprocess.PIPE, stdout=log, stderr=errors, text=True, start_new_session=True,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )  # fmt: skip
    assert process.stdin is not None
    with process.stdin as given:
        json.dump({"job": state.job.model_dump(mode="json"), "device": device}, given)
    state.process, state.status, state.began = process, "running", time.monotonic()
    return state


def _ended(state: JobState, store: ResultStore) -> bool:
    assert state.process is not None
    code = state.process.poll()
    if code is None:
        return False
    state.ended = time.monotonic()
    if code:
        state.status = "failed"
        _record_failure(state.job, code)
    else:
        state.done(store.add(state.job))
    return True


def _record_failure(job: Job, code: int) -> None:
    lines = (job.folder / ERRORS).read_text(encoding="utf-8", errors="replace").splitlines()
    # The end of the error output holds the exception; a killed process leaves none.
    error = "\n".join(lines[-_LAST_LINES:]) or f"The process ended with {code}."
    failure = {"job": job.name, "command": job.command, "exit": code, "error": error}
    (job.folder / FAILURE).write_text(json.dumps(failure, indent=2) + "\n", encoding="utf-8")


def read_failure(folder: Path) -> str | None:
    """What went wrong, where something did."""
    path = folder / FAILURE
    return json.loads(path.read_text(encoding="utf-8"))["error"] if path.is_file() else None


def _interrupt(running: Sequence[JobState]) -> None:
    """Lets trainings save, so that the next call goes on with them."""
    for state in running:
        if state.process is not None:
            state.process.send_signal(signal.SIGINT)
    # All are waited for after all were asked, so that they save at the same time.
    end = time.monotonic() + SAVING_SECONDS
    for state in running:
        if state.process is None:
            continue
        try:
            state.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            # One that compiles does not react to a signal; its last saved state is all it has.
            os.killpg(state.process.pid, signal.SIGKILL)
            state.process.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""
