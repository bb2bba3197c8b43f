"""Calls of the command line in processes of their own, made by fork so that each starts at once.

A forked call is a process like any other: it can be killed, limited in memory and timed. Python and
torch are loaded once, by the parent, which never computes anything itself.
"""

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

WALL = 60.0
"""Seconds after which a process is ended, whatever it does."""
MEMORY = 16 * 2**30
"""Address space of a process: what asks for more fails, as on a smaller machine."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    code: int
    """Exit code, or minus the number of the signal that ended it."""
    out: str
    err: str
    seconds: float
    """Processor time."""
    peak_mib: int
    timed_out: bool = False
    killed: bool = False
    """By the attack."""


def squid(
    *words: str | Path,
    folder: Path | None = None,
    kill_after: float | None = None,
    sent: signal.Signals = signal.SIGKILL,
    file_limit: int | None = None,
) -> Outcome:
    """`squid WORDS...` in `folder`; after `kill_after` seconds it gets a signal."""
    work = command(*words, folder=folder, file_limit=file_limit)
    return forked(work, kill_after=kill_after, sent=sent)


def command(
    *words: str | Path, folder: Path | None = None, file_limit: int | None = None
) -> Callable[[], None]:
    """What a process does that runs `squid WORDS...`; no file it writes may grow larger than
    `file_limit` bytes."""

    def work() -> None:
        if file_limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails like on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        if folder is not None:
            os.chdir(folder)
        sys.argv = ["squid", *map(str, words)]
        from squid.cli import main

        main()

    return work


def forked(
    work: Callable[[], None],
    *,
    kill_after: float | None = None,
    sent: signal.Signals = signal.SIGKILL,
    wall: float = WALL,
) -> Outcome:
    """`work` in a process of its own."""
    return Started(work).wait(kill_after=kill_after, sent=sent, wall=wall)


def together(calls: Sequence[Callable[[], None]]) -> list[Outcome]:
    """Several processes at the same time."""
    return [started.wait() for started in [Started(call) for call in calls]]


class Started:
    """A process that runs."""

    def __init__(self, work: Callable[[], None]) -> None:
        # Files rather than pipes: a process that is killed may leave others that hold a pipe open.
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, self._out.fileno(), self._err.fileno())

    def wait(
        self,
        *,
        kill_after: float | None = None,
        sent: signal.Signals = signal.SIGKILL,
        wall: float = WALL,
    ) -> Outcome:
        began, killed, timed_out = time.monotonic(), False, False
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                break
            passed = time.monotonic() - began
            if kill_after is not None and passed >= kill_after and not killed:
                killed = True
                os.kill(self.pid, sent)
            if passed > wall and not timed_out:
                timed_out = True
                os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.002)
        return Outcome(
            code=os.waitstatus_to_exitcode(status),
            out=_read(self._out),
            err=_read(self._err),
            seconds=usage.ru_utime + usage.ru_stime,
            peak_mib=usage.ru_maxrss // 1024,
            timed_out=timed_out,
            killed=killed,
        )


def _child(work: Callable[[], None], out: int, err: int) -> NoReturn:
    """Never returns: the parent's code must not go on in the child."""
    code = 0
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _read(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")
