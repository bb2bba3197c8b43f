"""The training loop: stages of objectives over batches. It knows no method and touches no file.

What happens is told to a `Monitor` (the run folder, the progress bar); what is needed to go on later is handed to it as one state.
"""

import math
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from squid.config import Config
from squid.data.cache import Augment, ImageStore
from squid.errors import ConfigError, DivergedError
from squid.methods.base import Batch, Method, Stage
from squid.train.draws import Dice
from squid.train.engine import Engine, Precision
from squid.train.optimizers import rate, set_rate
from squid.train.step import Step, StepForm, join_ranks, make_step

State = dict[str, Any]
"""Everything a training needs to go on: stage, epoch, step, weights, optimisers, sums of losses."""

SECONDS_BETWEEN_READINGS = 1.0
"""Losses are read back from the device this often at most: a reading waits for the device."""


class TrainConfig(Config):
    """How a method is trained, whatever it is."""

    precision: Precision = "float32"
    step: StepForm = "auto"
    """eager | compiled | graphed: the same maths at different speeds."""
    augment: Augment | None = Augment()
    snapshot_every: int | None = None
    """Epochs between snapshots, at which the images of the validation and test splits are scored."""
    save_minutes: float = 2.0
    """Between writings of the state to resume from, which is also written when training is interrupted."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch (or the part of it so far) came to."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    losses: Mapping[str, float]
    rates: Mapping[str, float]
    seconds: float
    images_per_second: float


class Monitor(Protocol):
    """Who is told what happens."""

    def progress(self, now: Epoch) -> None:
        """About once a second."""
        ...

    def epoch(self, done: Epoch) -> None:
        """At the end of each epoch."""
        ...

    def snapshot(self, epoch: int) -> None:
        """Every `snapshot_every` epochs, with the method in eval mode."""
        ...

    def save(self, state: State) -> None:
        """A state from which training can go on; only ever one with finite losses."""
        ...


class Interrupted(KeyboardInterrupt):
    """Training was interrupted after its state was saved."""


@dataclass
class _Cursor:
    """Where in the training we are; all that `resume` needs beside weights and optimisers."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    totals: dict[str, float] = field(default_factory=dict)


def train(
    method: Method, store: ImageStore, config: TrainConfig, *, seed: int, engine: Engine, monitor: Monitor,
    state: State | None = None,
) -> None:  # fmt: skip
    """Train `method` in place; `state` goes on from one that a monitor was given."""
    join_ranks(method, engine.ranks)
    method.begin(len(store))
    method.to(engine.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cursor = _Cursor()
    if state is not None:
        method.restore(state["method"])
        cursor = _Cursor(state["stage"], state["epoch"], state["step"], dict(state["totals"]))
    stages = method.stages()
    with _interrupts() as interrupted:
        for number in range(cursor.stage, len(stages)):
            trainer = _StageTrainer(
                method, stages[number], number, store, config, seed, engine, monitor
            )
            optimizers = state["optimizers"] if state and number == cursor.stage else None
            trainer.run(
                cursor if number == cursor.stage else _Cursor(number), optimizers, interrupted
            )
    method.eval()
    with torch.no_grad():
        method.finalize(_batches(store, 64))


class _StageTrainer:
    """One stage from its first (or resumed) step to its last."""

    def __init__(
        self, method: Method, stage: Stage, number: int, store: ImageStore, config: TrainConfig,
        seed: int, engine: Engine, monitor: Monitor,
    ) -> None:  # fmt: skip
        _check_batch(stage, len(store), engine.world)
        self.method, self.stage, self.store = method, stage, store
        self.config, self.engine, self.monitor = config, engine, monitor
        self.step: Step = make_step(config.step, stage, store, engine)
        self.dice = Dice(
            method, config.augment, seed=seed, stage=number, images=len(store), device=engine.device,
            rank=engine.rank, world=engine.world,
        )  # fmt: skip
        whole, rest = divmod(len(store), stage.batch_size)
        self.steps = max(1, whole if stage.drop_last or not rest else whole + 1)
        self.epochs = stage.epochs or math.ceil((stage.steps or 0) / self.steps)
        self.saved = time.monotonic()

    def run(
        self, cursor: _Cursor, optimizers: list[State] | None, interrupted: threading.Event
    ) -> None:
        for optimizer, saved in zip(self.step.optimizers, optimizers or [], strict=False):
            optimizer.load_state_dict(saved)
        for epoch in range(cursor.epoch, self.epochs):
            start = cursor.step if epoch == cursor.epoch else 0
            self._prepare(epoch, fresh=start == 0)
            self._epoch(epoch, start, cursor.totals if start else {}, cursor.stage, interrupted)

    def _prepare(self, epoch: int, *, fresh: bool) -> None:
        every = self.stage.every_epochs
        due = epoch == 0 or (every is not None and epoch % every == 0)
        if self.stage.prepare is not None and due and fresh:
            self.method.eval()
            with torch.no_grad():
                self.stage.prepare(_batches(self.store, self.stage.batch_size))

    def _epoch(
        self,
        epoch: int,
        start: int,
        totals: dict[str, float],
        number: int,
        interrupted: threading.Event,
    ) -> None:
        self.method.train()
        rates = self._set_rates(epoch)
        self.step.start_totals(totals)
        began = read = time.monotonic()
        steps = self._steps(epoch)
        for step in range(start, steps):
            draws = self.dice.draw(epoch, step, self.stage.batch_size)
            self.step(draws, tuple(step % o.every == 0 for o in self.stage.objectives))
            if interrupted.is_set():
                self._save(number, epoch, step + 1, steps)
                raise Interrupted
            if time.monotonic() - read > SECONDS_BETWEEN_READINGS:
                self.monitor.progress(self._record(epoch, step + 1, steps, start, rates, began))
                read = time.monotonic()
        self.monitor.epoch(self._record(epoch, steps, steps, start, rates, began))
        self._end_of_epoch(epoch, number, steps)

    def _end_of_epoch(self, epoch: int, number: int, steps: int) -> None:
        last = epoch + 1 == self.epochs
        every = self.config.snapshot_every
        if every is not None and ((epoch + 1) % every == 0 or last):
            self.method.eval()
            self.monitor.snapshot(epoch + 1)
        if last or time.monotonic() - self.saved > 60 * self.config.save_minutes:
            self._save(number, epoch, steps, steps)

    def _steps(self, epoch: int) -> int:
        left = self.steps if self.stage.steps is None else self.stage.steps - epoch * self.steps
        return min(self.steps, left)

    def _set_rates(self, epoch: int) -> dict[str, float]:
        rates = {}
        for objective, optimizer in zip(self.stage.objectives, self.step.optimizers, strict=True):
            rates[objective.name] = rate(objective.optimizer, epoch, self.epochs)
            set_rate(optimizer, rates[objective.name])
        return rates

    def _record(
        self,
        epoch: int,
        step: int,
        steps: int,
        start: int,
        rates: Mapping[str, float],
        began: float,
    ) -> Epoch:
        """Reads the sums of the losses back from the device, and refuses to go on from one that is not finite."""
        losses = {}
        for objective in self.stage.objectives:
            updates = math.ceil(step / objective.every)
            for name, total in self.step.totals.items():
                if name.startswith(f"{objective.name}."):
                    losses[name] = total.item() / updates
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(self.stage.name, epoch + 1, bad[0], losses[bad[0]])
        seconds = time.monotonic() - began
        speed = (step - start) * self.stage.batch_size / max(seconds, 1e-9)
        return Epoch(
            self.stage.name, epoch + 1, self.epochs, step, steps, losses, rates, seconds, speed
        )

    def _save(self, number: int, epoch: int, step: int, steps: int) -> None:
        done = step == steps
        totals = {} if done else {name: total.item() for name, total in self.step.totals.items()}
        if not all(map(math.isfinite, totals.values())):
            return  # keep the last good state
        self.saved = time.monotonic()
        self.monitor.save({
            "stage": number, "epoch": epoch + 1 if done else epoch, "step": 0 if done else step,
            "totals": totals, "method": self.method.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.step.optimizers],
        })  # fmt: skip


class Diverged(DivergedError):
    """A loss is not finite any more."""

    def __init__(self, stage: str, epoch: int, name: str, value: float) -> None:
        super().__init__(
            f"Training diverged: {name} is {value} in epoch {epoch} of stage '{stage}'; "
            "lower the learning rate or use float32, then resume from the last good state."
        )


def _check_batch(stage: Stage, images: int, world: int) -> None:
    if stage.batch_size % world:
        raise ConfigError(
            f"A batch of {stage.batch_size} cannot be shared equally by {world} processes; "
            "choose a batch_size that divides."
        )
    if stage.drop_last and images < stage.batch_size:
        raise ConfigError(
            f"{images} training images do not fill one batch of {stage.batch_size}; "
            "set method.batch_size to less."
        )


def _batches(store: ImageStore, size: int) -> Iterable[Batch]:
    for images, index in store.batches(size):
        yield Batch(images, index, {})


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that is looked at between steps, so that no step is left half done; twice stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
