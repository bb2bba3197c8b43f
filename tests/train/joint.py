"""Trains a small SQUID in so many CPU processes; each leaves its weights and losses.

    python joint.py FOLDER PROCESSES [STEP_TO_INTERRUPT_RANK_1_AT]

Fabric starts this file again for every further process.
"""

import sys
from pathlib import Path

import torch
from conftest import interrupt

from squid.data.store import ImageStore
from squid.methods import METHODS, build
from squid.train import Engine, Interrupted, Monitor, TrainConfig, train

SETTINGS = {
    "size": 32,
    "width": 4,
    "depth": 3,
    "slots": 40,
    "matrix_slots": 8,
    "heads": 2,
    "discriminator_width": 4,
    "batch_size": 8,
    "epochs": 5,
}


class DoubleStore(ImageStore):
    """With float64 what differs is not rounding, which Adam's first steps would make large."""

    def batch(self, index, affine=None):
        return super().batch(index, affine).double()


class Watcher(Monitor):
    def __init__(self):
        self.losses, self.saved = [], []

    def epoch(self, done):
        self.losses.append(dict(done.losses))

    def save(self, state):
        self.saved.append((state["epoch"], state["step"]))


def main():
    folder, processes = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    engine = Engine("cpu", devices=processes)
    engine.launch()
    torch.manual_seed(0)
    method = build(METHODS["squid"].Config(name="squid", **SETTINGS)).double()
    if len(sys.argv) > 3 and engine.rank == 1:
        interrupt(method, int(sys.argv[3]))
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (32, 1, 32, 32), dtype=torch.uint8, generator=generator)
    watcher, interrupted = Watcher(), False
    try:
        store = DoubleStore(pixels, "cpu")
        train(method, store, TrainConfig(), seed=0, engine=engine, monitor=watcher)
    except Interrupted:
        interrupted = True
    result = {
        "weights": method.state_dict(),
        "losses": watcher.losses,
        "saved": watcher.saved,
        "interrupted": interrupted,
    }
    torch.save(result, folder / f"{processes}-{engine.rank}.pt")


if __name__ == "__main__":
    main()
