"""`python -m squid.benchmark.worker` runs the job it reads from its standard input.

Each job has a process of its own: one that fails, or takes the GPU down with it, stops no other.
"""

import json
import logging
import sys
import time

from squid.benchmark.job import run_job
from squid.benchmark.plan import Job
from squid.config import parse
from squid.errors import SquidError
from squid.train import Epoch, Monitor

SECONDS_BETWEEN_LINES = 1.0


class ProgressLines(Monitor):
    """Writes a line about where a training is to the standard output."""

    def __init__(self) -> None:
        self._written = 0.0

    def progress(self, now: Epoch) -> None:
        if time.monotonic() - self._written > SECONDS_BETWEEN_LINES:
            self._written = time.monotonic()
            sys.stdout.write(f"{now.stage} {now.epoch}/{now.epochs}\n")
            sys.stdout.flush()

    def epoch(self, done: Epoch) -> None:
        self.progress(done)


def main() -> int:
    given = json.load(sys.stdin)
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    try:
        run_job(
            parse(Job, given["job"], "the job"), device=given["device"], monitor=ProgressLines()
        )
    except SquidError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
