"""`python -m squid.benchmark.worker` runs the cell it reads from its standard input.

Each cell has a process of its own: one that fails, or takes the GPU down with it, stops no other.
"""

import json
import logging
import sys
from pathlib import Path

from squid.benchmark.cell import plain, run_cell
from squid.benchmark.plan import Cell
from squid.config import parse
from squid.errors import SquidError
from squid.recipe import Recipe
from squid.train import Epoch
from squid.train.engine import Device
from squid.train.loop import State


class Teller:
    """A monitor that writes a line about where a training is to the standard output."""

    def progress(self, now: Epoch) -> None:
        sys.stdout.write(f"{now.stage} {now.epoch}/{now.epochs}\n")
        sys.stdout.flush()

    def epoch(self, done: Epoch) -> None: ...

    def snapshot(self, epoch: int) -> None: ...

    def save(self, state: State) -> None: ...


def to_json(cell: Cell, device: Device) -> str:
    """What the process reads."""
    return json.dumps(
        {
            "section": cell.section,
            "row": cell.row,
            "recipe": plain(cell.recipe),
            "folder": str(cell.folder),
            "command": cell.command,
            "device": device,
        }
    )


def main() -> int:
    given = json.load(sys.stdin)
    device = given.pop("device")
    recipe = parse(Recipe, given.pop("recipe"), "cell")
    cell = Cell(recipe=recipe, folder=Path(given.pop("folder")), **given)
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    try:
        run_cell(cell, device=device, monitor=Teller())
    except SquidError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
