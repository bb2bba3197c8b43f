"""The training loop: stages of objectives over batches. It knows no method and touches no file.

A `Monitor` (`monitor.py`) receives epochs, snapshots, and the state from which an interrupted
training can go on.
"""

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, field_validator

from squid.config import Config, Precision
from squid.data.store import Augment, ImageStore
from squid.errors import ConfigError, DivergedError
from squid.methods.base import Batch, Method, Stage
from squid.train.bf16 import round_to_bf16
from squid.train.engine import Engine
from squid.train.interrupts import Interrupted, interrupts
from squid.train.monitor import Epoch, Monitor, State, Weights
from squid.train.optimizers import rate, restore_optimizer, set_rate
from squid.train.position import Position, position_of
from squid.train.sampler import Sampler
from squid.train.step import Step, Switch, join_ranks, make_step, pick_form

SECONDS_BETWEEN_RECORDS = 1.0
"""Losses are read back from the device at most this often, because reading waits for the device."""
STEPS_BETWEEN_AGREEMENTS = 16
"""Several processes agree this often on whether one of them was interrupted."""


class TrainConfig(Config):
    """How a method is trained, the same for every method."""

    precision: Precision = "float32"
    compile: Switch = "auto"
    """torch.compile for the training step: faster kernels after a minute or two of compiling.
    `auto`: on a GPU, for trainings of 30,000 steps or more."""
    cuda_graph: Switch = "auto"
    """Capture the training step once and replay it as one launch. `auto`: where one GPU holds the
    images."""
    augment: Augment | Literal[False] = Augment()
    """Random shift and scale of each training image; `false` for none."""
    snapshot_every: int | None = None
    """Epochs between snapshots, at which the validation and test images are scored. The count goes
    on from one member of an ensemble to the next."""
    snapshot_noise: float = Field(0.0, ge=0)
    """Standard deviation of Gaussian noise, on pixels in [0, 1], added to the test images for a
    second reading of each snapshot and of the evaluation; 0 for none."""
    save_minutes: float = 5.0
    """Minutes between saved states to resume from; an interrupt saves one too."""

    @field_validator("augment", mode="before")
    @classmethod
    def _read_augment(cls, value: Any) -> Any:
        return Augment.model_validate(value) if isinstance(value, Mapping) else value


def train(
    method: Method,
    store: ImageStore,
    config: TrainConfig,
    *,
    seed: int,
    engine: Engine,
    monitor: Monitor,
    state: State | None = None,
) -> None:
    """Train `method` in place, from the beginning or from a `state` that a monitor received."""
    # Before the stages are built: buffers get their sizes, and blocks the other processes.
    join_ranks(method, engine.ranks)
    method.begin(len(store))
    method.to(engine.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if state is not None:
        method.restore(state["method"])
    stages = method.stages()
    begin = Position() if state is None else position_of(state, stages, len(store))
    with interrupts() as interrupted:
        context = _Context(method, store, config, seed, engine, monitor, interrupted)
        for number in range(begin.stage, len(stages)):
            trainer = _StageTrainer(context, stages, number)
            if state is not None and number == begin.stage:
                trainer.run(begin, state["optimizers"])
            else:
                trainer.run(Position(number))
    if engine.precision == "bf16":
        round_to_bf16(method)
    _fit_to(method, store)


@dataclass(frozen=True)
class _Context:
    """What all stages of a training share."""

    method: Method
    store: ImageStore
    config: TrainConfig
    seed: int
    engine: Engine
    monitor: Monitor
    interrupted: threading.Event


@dataclass(frozen=True)
class _EpochUnderWay:
    """What a record needs to know of the epoch in which it is made."""

    epoch: int
    start: int
    """First step of this process: not 0 where the epoch was interrupted."""
    steps: int
    rates: Mapping[str, float]
    began: float


class _StageTrainer:
    """One stage from its first (or resumed) step to its last."""

    def __init__(self, context: _Context, stages: tuple[Stage, ...], number: int) -> None:
        method, store, engine = context.method, context.store, context.engine
        self.method, self.store, self.engine = method, store, engine
        self.config, self.monitor = context.config, context.monitor
        self.interrupted = context.interrupted
        self.number, self.stage = number, stages[number]
        self.trained = self.stage.member or method  # what prepares images and declares noise
        # Snapshots are numbered by the epochs of all stages so far, an ensemble's members included.
        self.epochs_before = sum(s.epochs_over(len(store)) for s in stages[:number] if s.snapshots)
        _check_batch(self.stage, len(store), engine.world)
        self.sampler = Sampler(
            self.trained,
            (self.config.augment or None) if self.stage.augmented else None,
            seed=context.seed,
            stage=number,
            images=len(store),
            device=engine.device,
            rank=engine.rank,
            world=engine.world,
        )
        self.steps = self.stage.steps_per_epoch(len(store))
        self.epochs = self.stage.epochs_over(len(store))
        form = pick_form(
            self.config.compile,
            self.config.cuda_graph,
            engine.device,
            steps=self.steps * self.epochs,
            world=engine.world,
            on_device=store.on_device,
        )
        self.step: Step = make_step(form, method, self.stage, store, engine)
        self.saved = time.monotonic()

    def run(self, begin: Position, optimizers: Sequence[Weights] | None = None) -> None:
        # A resumed stage goes on with the state of its optimisers.
        if optimizers is not None:
            for optimizer, saved in zip(self.step.optimizers, optimizers, strict=True):
                restore_optimizer(optimizer, saved)
        for epoch in range(begin.epoch, self.epochs):
            start = begin.step if epoch == begin.epoch else 0
            self._prepare(epoch, fresh=start == 0)
            self._epoch(epoch, start, begin.totals if start else {})

    def _prepare(self, epoch: int, *, fresh: bool) -> None:
        """The stage's own preparation, before its first epoch and every `every_epochs`; not again
        in an epoch that was interrupted, whose state already holds the result."""
        every = self.stage.every_epochs
        due = epoch == 0 or (every is not None and epoch % every == 0)
        if self.stage.prepare is not None and due and fresh:
            self.method.eval()
            with torch.no_grad(), self.engine.autocast():
                self.stage.prepare(_Batches(self.trained, self.store, self.stage.batch_size))

    def _epoch(self, epoch: int, start: int, totals: dict[str, float]) -> None:
        self.method.train()
        steps = self._steps(epoch)
        now = _EpochUnderWay(epoch, start, steps, self._set_rates(epoch), time.monotonic())
        self.step.begin_epoch(totals)
        read = now.began
        for step in range(start, steps):
            draws = self.sampler.draw(epoch, step, self.stage.batch_size)
            self.step(draws, tuple(step % o.every == 0 for o in self.stage.objectives))
            done = step + 1
            if done < steps and self._must_stop(done):
                self._save(epoch, done)
                raise Interrupted
            if done < steps and time.monotonic() - read > SECONDS_BETWEEN_RECORDS:
                record = self._record(now, done)
                # Several processes must stop together, so they check at the end of the epoch only.
                if self.engine.world == 1:
                    _refuse_divergence(record)
                self.monitor.progress(record)
                read = time.monotonic()
        self._end_epoch(self._record(now, steps))

    def _end_epoch(self, done: Epoch) -> None:
        # Checked before the state is saved: the last saved state always has finite losses.
        _refuse_divergence(done)
        self.monitor.epoch(done)
        # Snapshots in every n-th epoch, and in the last one whatever its number.
        last, every = done.epoch == self.epochs, self.config.snapshot_every
        if self.stage.snapshots and every is not None and (done.epoch % every == 0 or last):
            self._snapshot(self.epochs_before + done.epoch)
        # A state at the end of the stage, before an interruption, and every few minutes.
        stop = self._must_stop(0)
        if last or stop or time.monotonic() - self.saved > 60 * self.config.save_minutes:
            self._save(done.epoch, 0)
        if stop:
            raise Interrupted

    def _snapshot(self, epoch: int) -> None:
        """Fit the method as at the end of its training, hand it to the monitor, and restore it."""
        method = self.stage.member or self.method
        # What is fitted in closed form lies in buffers; training goes on with the present ones.
        before = {name: buffer.clone() for name, buffer in method.named_buffers()}
        _fit_to(method, self.store)
        self.monitor.snapshot(epoch, method)
        for name, buffer in method.named_buffers():
            if buffer.shape == before[name].shape:  # others were empty, and nothing reads them
                buffer.copy_(before[name])

    def _must_stop(self, step: int) -> bool:
        """Whether Ctrl-C was pressed. Processes agree on it every few steps, so that none waits for
        another that has stopped."""
        ranks = self.engine.ranks
        if ranks.alone:
            return self.interrupted.is_set()
        if step % STEPS_BETWEEN_AGREEMENTS:
            return False
        interrupted = torch.tensor([float(self.interrupted.is_set())], device=self.engine.device)
        return bool(ranks.gather(interrupted).any())

    def _steps(self, epoch: int) -> int:
        """Steps of that epoch: fewer in the last one of a stage that is given in steps."""
        left = self.steps if self.stage.steps is None else self.stage.steps - epoch * self.steps
        return min(self.steps, left)

    def _set_rates(self, epoch: int) -> dict[str, float]:
        rates = {}
        for objective, optimizer in zip(self.stage.objectives, self.step.optimizers, strict=True):
            rates[objective.name] = rate(objective.optimizer, epoch, self.epochs)
            set_rate(optimizer, rates[objective.name])
        return rates

    def _record(self, now: _EpochUnderWay, step: int) -> Epoch:
        """Read the sums of the losses back from the device, and divide them by their updates."""
        losses = {}
        for objective in self.stage.objectives:
            # One that is updated in every n-th step has had fewer updates than there were steps.
            updates = math.ceil(step / objective.every)
            for name, total in self.step.totals.items():
                if name.startswith(f"{objective.name}."):
                    losses[name] = total.item() / updates
        seconds = time.monotonic() - now.began
        return Epoch(
            stage=self.stage.name,
            epoch=now.epoch + 1,
            epochs=self.epochs,
            step=step,
            steps=now.steps,
            losses=losses,
            rates=now.rates,
            seconds=seconds,
            images_per_second=(step - now.start) * self.stage.batch_size / max(seconds, 1e-9),
        )

    def _save(self, epoch: int, step: int) -> None:
        """Hand the monitor the state before that step, unless a loss is not finite."""
        totals = {name: total.item() for name, total in self.step.totals.items()} if step else {}
        if not all(map(math.isfinite, totals.values())):
            return  # keep the last good state
        self.saved = time.monotonic()
        state = State(
            stage=self.number,
            epoch=epoch,
            step=step,
            totals=totals,
            method=self.method.state_dict(),
            optimizers=[optimizer.state_dict() for optimizer in self.step.optimizers],
        )
        self.monitor.save(state)


def _refuse_divergence(now: Epoch) -> None:
    for name, value in now.losses.items():
        if not math.isfinite(value):
            raise DivergedError(
                f"Training diverged: {name} is {value} in epoch {now.epoch} of '{now.stage}'; "
                "lower the learning rate or use float32"
            )


def check_batches(method: Method, images: int, world: int = 1) -> None:
    """Refuse a training whose batches its images do not fill, before anything is written."""
    method.begin(images)
    for stage in method.stages():
        _check_batch(stage, images, world)


def _check_batch(stage: Stage, images: int, world: int) -> None:
    rest = 0 if stage.drop_last else images % stage.batch_size
    for shared in (stage.batch_size, rest):
        if shared % world:
            raise ConfigError(
                f"A batch of {shared} images cannot be shared equally by {world} processes; "
                "choose a batch_size that divides, and drop_last."
            )
    if stage.drop_last and images < stage.batch_size:
        raise ConfigError(
            f"{images} training images do not fill one batch of {stage.batch_size}; "
            "give more images, or set the method's batch_size to less."
        )


def _fit_to(method: Method, store: ImageStore) -> None:
    """The part of a method that is fitted in closed form, after the gradients."""
    method.eval()
    with torch.no_grad():
        method.finalize(_Batches(method, store, 64))


@dataclass(frozen=True)
class _Batches:
    """The training set without augmentation, prepared; it can be iterated repeatedly."""

    method: Method
    store: ImageStore
    size: int

    def __iter__(self) -> Iterator[Batch]:
        for images, index in self.store.batches(self.size):
            yield Batch(self.method.prepare(images), index, {})
