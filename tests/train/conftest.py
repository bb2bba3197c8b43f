"""A SQUID small enough to be trained in a second, and monitors that look on."""

import copy
import os
import signal
from dataclasses import replace

import pytest
import torch

from squid.data.store import ImageStore
from squid.methods import METHODS, build
from squid.train import Engine, Monitor, TrainConfig, train

SMALL = {
    "squid": {
        "size": 32,
        "width": 4,
        "depth": 3,
        "slots": 8,
        "matrix_slots": 8,
        "heads": 2,
        "discriminator_width": 4,
        "batch_size": 4,
        "epochs": 3,
    },
    "salad": {"size": 32, "batch_size": 4, "epochs": 2, "width": 4},
    "panda": {"size": 32, "batch_size": 4, "epochs": 2, "backbone": {"weights": "random"}},
    "mnad": {"size": 32, "batch_size": 4, "epochs": 2, "channels": (4, 8, 8, 8)},
}


class Watcher(Monitor):
    """Keeps what it receives; states are copied, because training goes on in the same tensors."""

    def __init__(self):
        self.epochs, self.states, self.snapshots, self.shown = [], [], [], []

    def epoch(self, done):
        self.epochs.append(done)

    def snapshot(self, epoch, method):
        self.snapshots.append(epoch)
        self.shown.append(method)

    def save(self, state):
        self.states.append(copy.deepcopy(state))


def interrupt(method, step):
    """Ctrl-C during that step of the training."""
    stages, calls = method.stages, [0]

    def spied():
        (stage,) = stages()

        def after():
            if stage.after is not None:
                stage.after()
            calls[0] += 1
            if calls[0] == step:
                os.kill(os.getpid(), signal.SIGINT)

        return (replace(stage, after=after),)

    method.stages = spied
    return method


@pytest.fixture
def interrupt_at():
    return interrupt


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def new_watcher():
    return Watcher


@pytest.fixture(scope="session")
def store():
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (13, 1, 32, 32), dtype=torch.uint8, generator=generator)
    return ImageStore(pixels, "cpu")


@pytest.fixture(scope="session")
def make():
    """make(name, seed, **settings): an untrained method."""

    def make(name="squid", seed=0, **settings):
        torch.manual_seed(seed)
        return build(METHODS[name].Config(**{"name": name} | SMALL[name] | settings))

    return make


@pytest.fixture(scope="session")
def trained(make, store):
    """trained(...): the method after a training on the CPU."""

    def trained(method=None, *, monitor=None, seed=0, state=None, **config):
        method, settings = method or make(seed=seed), TrainConfig(**config)
        train(
            method,
            store,
            settings,
            seed=seed,
            engine=Engine("cpu", precision=settings.precision),
            monitor=monitor or Watcher(),
            state=state,
        )
        return method

    return trained
