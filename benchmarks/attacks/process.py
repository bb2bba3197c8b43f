"""Calls of the command line in processes of their own, made by fork so that each starts at once.

A forked call is a process like any other: it can be killed, limited in memory and timed. Python and
torch are loaded once, by the parent, which never computes anything itself. Linux only.
"""

import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

LIMIT = 20.0
"""Seconds of a process, as `Outcome.seconds` counts them, after which it is ended."""
WALL = 600.0
"""Seconds by the clock after which it is ended, however long others kept it from running."""
MEMORY = 8 * 2**30
"""Address space of a process: what asks for more fails, as on a smaller machine."""
PAUSE = 0.005
"""Seconds between two looks at a process."""
PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
LIBC = ctypes.CDLL(None)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    code: int
    """Exit code, or minus the number of the signal that ended it."""
    out: str
    err: str
    seconds: float
    """Processor time, and waiting for something else than a processor or a disk. That is what it
    takes on a machine of its own, whatever other programs do."""
    peak_mib: int
    waited: float = 0.0
    """Seconds of waiting among them."""
    timed_out: bool = False
    killed: bool = False
    """By the attack, before it had come to its end."""


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


def must(*words: str | Path) -> Outcome:
    """`squid WORDS...`, which nothing keeps from its end: an attack on what never works shows
    nothing."""
    outcome = squid(*words)
    if outcome.code != 0:
        raise RuntimeError(f"squid {words[0]} does not run: {outcome.err}")
    return outcome


def forked(
    work: Callable[[], None],
    *,
    kill_after: float | None = None,
    sent: signal.Signals = signal.SIGKILL,
    limit: float = LIMIT,
) -> Outcome:
    """`work` in a process of its own."""
    return _ends([Started(work, kill_after=kill_after, sent=sent, limit=limit)])[0]


def together(calls: Sequence[Callable[[], None]]) -> list[Outcome]:
    """Several processes at the same time."""
    return _ends([Started(call) for call in calls])


def _ends(processes: Sequence["Started"]) -> list[Outcome]:
    """How each ended; none of them outlives this call."""
    try:
        while sum(not process.look() for process in processes):
            time.sleep(PAUSE)
    finally:
        for process in processes:
            process.end()
    return [process.outcome for process in processes if process.outcome is not None]


class Started:
    """A process that runs, in a session of its own."""

    def __init__(
        self,
        work: Callable[[], None],
        *,
        kill_after: float | None = None,
        sent: signal.Signals = signal.SIGKILL,
        limit: float = LIMIT,
    ) -> None:
        # Files rather than pipes: a process that is killed may leave others that hold a pipe open.
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._kill_after, self._sent, self._limit = kill_after, sent, limit
        self._signalled = self._timed_out = False
        self._waited = 0.0
        self.outcome: Outcome | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, self._out.fileno(), self._err.fileno(), parent)
        self._began = self._seen = time.monotonic()

    def look(self) -> bool:
        """Whether it has ended; a signal is sent and a limit is held when their time has come."""
        if self.outcome is not None:
            return True
        # Not reaped yet: its number, which is that of its group, cannot be another's.
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._reap()
            return True
        now, (runs, processor) = time.monotonic(), _state(self.pid)
        self._waited += 0.0 if runs else now - self._seen
        self._seen, used = now, processor + self._waited
        if self._kill_after is not None and used >= self._kill_after and not self._signalled:
            self._signalled = True
            os.kill(self.pid, self._sent)
        if used > self._limit or now - self._began > WALL:
            self._timed_out = True
            os.killpg(self.pid, signal.SIGKILL)
        return False

    def end(self) -> None:
        """Kill it, and what it started, if it runs."""
        if self.outcome is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._reap()

    def _reap(self) -> None:
        # What it started and left behind goes first.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.outcome = Outcome(
            code=code,
            out=_read(self._out),
            err=_read(self._err),
            seconds=usage.ru_utime + usage.ru_stime + self._waited,
            peak_mib=usage.ru_maxrss // 1024,
            waited=self._waited,
            timed_out=self._timed_out,
            killed=self._signalled and code != 0,
        )


def _state(pid: int) -> tuple[bool, float]:
    """Whether one of its threads runs, or waits for a processor or a disk; and its seconds of
    processor time."""
    whole = _fields(Path(f"/proc/{pid}/stat"))
    tasks = Path(f"/proc/{pid}/task")
    runs = whole[0] in "RD" or any(_fields(one / "stat")[0] in "RD" for one in tasks.iterdir())
    return runs, (int(whole[11]) + int(whole[12])) / TICKS


def _fields(stat: Path) -> list[str]:
    """The fields of a `stat` file of proc(5) from the state on; a thread that ended has none."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]


def _child(work: Callable[[], None], out: int, err: int, parent: int) -> NoReturn:
    """Never returns: the parent's code must not go on in the child."""
    code = 0
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        LIBC.prctl(PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it was asked for
            os._exit(1)
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
