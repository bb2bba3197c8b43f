"""`python -m squid.benchmark.worker` runs the cell it reads from its standard input.

Each cell has a process of its own: one that fails, or takes the GPU down with it, stops no other.
"""

import json
import logging
import sys
import time

from squid.benchmark.cell import run_cell
from squid.benchmark.plan import Cell
from squid.errors import SquidError
from squid.methods.base import Method
from squid.train import Epoch
from squid.train.loop import State

SECONDS_BETWEEN_LINES = 1.0


class Teller:
    """A monitor that writes a line about where a training is to the standard output."""

    def __init__(self) -> None:
        self._told = 0.0

    def progress(self, now: Epoch) -> None:
        if time.monotonic() - self._told > SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            sys.stdout.write(f"{now.stage} {now.epoch}/{now.epochs}\n")
            sys.stdout.flush()

    def epoch(self, done: Epoch) -> None:
        self.progress(done)

    def snapshot(self, epoch: int, method: Method) -> None: ...

    def save(self, state: State) -> None: ...


def main() -> int:
    given = json.load(sys.stdin)
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    try:
        run_cell(Cell.revived(given["cell"]), device=given["device"], monitor=Teller())
    except SquidError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
