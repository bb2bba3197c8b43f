"""SQUID's second stage: the discriminator learns to say at once what was said over time."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from squid.methods.base import Batch, Objective, Shared, Stage
from squid.methods.squid_config import SquidConfig
from squid.nn.discriminator import Discriminator
from squid.nn.opinions import Opinions, by_view, rebatched, views

HEARD_AT_ONCE = 128
"""Images: batches of training are too small to fill a GPU with drawing alone."""


@dataclass(frozen=True)
class Settling:
    """The generator is done. The discriminator learns to say of its drawings what was said of those
    before, together with a witness who sees the image itself: what other generators made of it
    cannot all be told from one drawing."""

    config: SquidConfig
    opinions: Opinions
    judges: tuple[Discriminator, Discriminator]
    """The discriminator and the witness."""
    redraw: Callable[[Tensor], Tensor]
    """As in scoring, though the rest may be in training."""
    doubt: Callable[[Tensor, Tensor], Tensor]
    """Of images and their drawings, by both judges."""

    def sit(self, batches: Iterable[Batch]) -> None:
        """At the beginning of each epoch before: `sittings` of them are heard."""
        discriminator, _ = self.judges
        states = self.opinions.average(discriminator)
        if states % max(1, self.config.epochs // self.config.sittings) == 0:
            self._hear(batches)

    def stage(self) -> Stage:
        config = self.config
        judge = Objective(
            name="judge",
            parameters=tuple(p for judge in self.judges for p in judge.parameters()),
            loss=self._loss,
            optimizer=config.settle,
            compilable=False,  # the generator draws as in scoring while the rest is in training
        )
        return Stage(
            name="settle",
            objectives=(judge,),
            batch_size=config.batch_size,
            epochs=config.settle_epochs,
            drop_last=config.drop_last,
            epoch_steps=config.epoch_steps,
            augmented=False,
            prepare=self._begin,
            snapshots=False,
        )

    def _begin(self, batches: Iterable[Batch]) -> None:
        self._hear(batches)
        averaged = self.opinions.judge.module.state_dict()
        for judge in self.judges:
            judge.load_state_dict(averaged)
        with torch.no_grad():
            self.opinions.take_measure(map(self._doubts, _together(batches)))

    def _hear(self, batches: Iterable[Batch]) -> None:
        drawn = (self.redraw(views(images)) for images in _together(batches))
        self.opinions.hear(drawn, self.config.score_statistics)

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        contradiction = self.opinions.contradiction(self._doubts(batch.images), batch.index)
        return {"contradiction": contradiction.square().mean()}

    def _doubts(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, v): of each view."""
        seen = views(images)
        return by_view(self.doubt(seen, self.redraw(seen)))


def silent_witness(judge: Discriminator) -> Discriminator:
    """One like it, who has nothing to say before it has learned to."""
    witness = copy.deepcopy(judge)
    nn.init.zeros_(witness.head.weight)
    nn.init.zeros_(witness.head.bias)
    return witness


def _together(batches: Iterable[Batch]) -> Iterator[Tensor]:
    return rebatched((batch.images for batch in batches), HEARD_AT_ONCE)
