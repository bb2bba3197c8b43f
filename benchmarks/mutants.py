"""Which faults would the tests notice? One deliberate fault (a mutant) at a time.

    python benchmarks/mutants.py [--only NAME] [--list] [--jobs N] [--write]

Each entry of `mutants.toml` replaces one text of one file and names the tests that must fail then.
The script works in temporary copies of the project, so the checkout stays as it is. It exits with 1
unless the tests notice every mutant and need less than a minute each, with the fault and without.
`--write` keeps what became of all of them in `benchmarks/results/studies/mutants.json`.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = Path(__file__).with_suffix(".toml")
RESULT = ROOT / "benchmarks" / "results" / "studies" / "mutants.json"
COPIED = ("src", "tests", "recipes", "benchmarks", "docs", "pyproject.toml", "README.md")
LIMIT = 60.0
"""Seconds of processor time that the tests of a mutant may take."""
TIMEOUT = 300.0
"""Seconds by the clock after which tests are ended: a fault may well make them wait for ever."""


@dataclass(frozen=True)
class Mutant:
    """A fault, and the tests that must notice it."""

    name: str
    file: str
    old: str
    """Occurs exactly once in the file."""
    new: str
    tests: str
    """Arguments of pytest."""

    def source(self, root: Path) -> str:
        """The text of its file without the fault."""
        text = (root / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its old text occurs {count} times in {self.file}.")
        return text

    @contextmanager
    def applied(self, root: Path) -> Iterator[None]:
        """The fault is in the file, and no longer afterwards."""
        path, text = root / self.file, self.source(root)
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")


def read_mutants() -> list[Mutant]:
    entries = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))
    return [Mutant(name=name, **entry) for name, entry in entries.items()]


def run_mutant(mutant: Mutant, root: Path) -> tuple[str, float]:
    """`killed` by a failing test, `survived`, `slow` where the tests take more than a minute, or
    `broken` where no test could run; and seconds."""
    with mutant.applied(root):
        status, seconds = run_tests(mutant.tests, root)
    if status < 0 or seconds > LIMIT:
        return "slow", seconds
    return {0: "survived", 1: "killed"}.get(status, "broken"), seconds


def run_tests(tests: str, root: Path) -> tuple[int, float]:
    """The exit status of pytest, 0 where all pass, 1 where one fails, below 0 where a signal ended
    it; and the seconds of processor time, which do not depend on what else the machine does."""
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    # Bytecode is kept by size and second of the source, so that of another mutant could be taken.
    environment = {
        "SQUID_SHARED": str(ROOT.parent / "shared"),
        "SQUID_DATA": str(ROOT.parent / "shared" / "data"),
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [*command, *shlex.split(tests)],
        cwd=root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    timer = threading.Timer(TIMEOUT, process.kill)
    timer.start()
    _, status, used = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    name: str
    outcome: str
    seconds: float
    """Processor time until the first test failed."""
    tests_seconds: float
    """Processor time of all these tests without the fault."""


def run_mutants(mutants: Sequence[Mutant], jobs: int) -> list[Result]:
    """What became of each; every job works in a copy of its own."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(jobs):
            copies.put(_copy(Path(folder) / str(number)))

        @contextmanager
        def free_copy() -> Iterator[Path]:
            root = copies.get()
            try:
                yield root
            finally:
                copies.put(root)

        def run_sound(tests: str) -> tuple[int, float]:
            with free_copy() as root:
                return run_tests(tests, root)

        def run(mutant: Mutant) -> Result:
            with free_copy() as root:
                outcome, seconds = run_mutant(mutant, root)
            print(f"{outcome:8}  {seconds:5.1f} s  {mutant.name}", flush=True)
            return Result(mutant.name, outcome, round(seconds, 1), round(sound[mutant.tests][1], 1))

        # A test that fails anyway would seem to notice every fault.
        unlike = list(dict.fromkeys(mutant.tests for mutant in mutants))
        sound = dict(zip(unlike, pool.map(run_sound, unlike), strict=True))
        _stop_unless_sound(sound)
        return list(pool.map(run, mutants))


def _stop_unless_sound(sound: Mapping[str, tuple[int, float]]) -> None:
    """Without a fault all tests must pass, each selection within a minute."""
    failing = [tests for tests, (status, _) in sound.items() if status != 0]
    if failing:
        sys.exit("These tests do not pass without a fault:\n" + "\n".join(failing))
    slow = [f"{tests}: {seconds:.0f} s" for tests, (_, seconds) in sound.items() if seconds > LIMIT]
    if slow:
        sys.exit(f"These tests take more than {LIMIT:g} s:\n" + "\n".join(slow))
    print("All these tests pass without a fault, within a minute each.", flush=True)


def record(results: Sequence[Result]) -> dict[str, Any]:
    """What is kept of a run of all mutants."""
    from squid.run import commit

    return {
        "command": "python benchmarks/mutants.py --write",
        "commit": commit(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "killed": sum(one.outcome == "killed" for one in results),
        "limit_seconds": LIMIT,
        "longest_seconds": max(max(one.seconds, one.tests_seconds) for one in results),
        "mutants": [asdict(one) for one in results],
    }


def _copy(root: Path) -> Path:
    """A copy of the project without bytecode."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy2(source, root / name)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", help="those whose name contains this")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--write", action="store_true", help="keep the results")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write keeps the results of all; leave out --only")
    mutants = [one for one in read_mutants() if (options.only or "") in one.name]
    if not mutants:
        sys.exit(f"No mutant's name contains '{options.only}'; --list prints all names.")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:45} {mutant.file}")
        return
    for mutant in mutants:
        mutant.source(ROOT)  # an outdated entry stops the script before hours are spent
    results = run_mutants(mutants, options.jobs)
    if options.write:
        RESULT.write_text(json.dumps(record(results), indent=2) + "\n", encoding="utf-8")
    outcomes = [one.outcome for one in results]
    counts = {name: outcomes.count(name) for name in ("killed", "survived", "slow", "broken")}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    sys.exit(int(counts["killed"] < len(mutants)))


if __name__ == "__main__":
    main()
