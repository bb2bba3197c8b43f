"""Score distillation, SQUID's second stage.

The discriminator learns the mean of the scores it gave during the first stage (temporal ensembling,
Laine & Aila, ICLR 2017; self-distillation, Zhang et al., ICCV 2019).
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from squid.methods.base import Batch, Objective, Shared, Stage
from squid.methods.squid.config import SquidConfig
from squid.methods.squid.temporal_ensemble import TemporalEnsemble, by_view, rebatched, views
from squid.nn.discriminator import Discriminator

IMAGES_AT_ONCE = 128
"""Reconstruction alone does not keep a GPU busy with batches as small as those of training."""


@dataclass(frozen=True)
class ScoreDistillation:
    """Targets are collected during the first stage. In the second the generator is fixed, and the
    discriminator learns the targets from its reconstructions, together with an image discriminator
    whose input is the image itself: the reconstruction of the last generator alone does not contain
    what the scores of all earlier reconstructions depended on.
    """

    config: SquidConfig
    ensemble: TemporalEnsemble
    discriminators: tuple[Discriminator, Discriminator]
    """The discriminator of reconstructions and the one of images."""
    reconstruct: Callable[[Tensor], Tensor]
    """The generator in eval mode."""
    score: Callable[[Tensor, Tensor], Tensor]
    """Images and their reconstructions -> (b,), by both discriminators."""

    def observe(self, batches: Iterable[Batch]) -> None:
        """Averages the discriminator at the start of each epoch of the first stage, and updates the
        targets in every n-th."""
        # The image discriminator learns in the second stage only.
        discriminator, _ = self.discriminators
        states = self.ensemble.average(discriminator)
        if states % max(1, self.config.epochs // self.config.target_updates) == 0:
            self._update_targets(batches)

    def stage(self) -> Stage:
        config = self.config
        objective = Objective(
            name="score_distillation",
            parameters=tuple(p for one in self.discriminators for p in one.parameters()),
            loss=self._loss,
            optimizer=config.score_distillation,
            compilable=False,  # the generator is in eval mode while the rest is in training mode
        )
        return Stage(
            name="score distillation",
            objectives=(objective,),
            batch_size=config.batch_size,
            epochs=config.score_distillation_epochs,
            drop_last=config.drop_last,
            epoch_steps=config.epoch_steps,
            augmented=False,
            prepare=self._begin,
            snapshots=False,
        )

    def _begin(self, batches: Iterable[Batch]) -> None:
        """Updates the targets a last time and sets both discriminators to the averaged weights."""
        # The last epoch of the first stage ended after the last `observe`.
        self._update_targets(batches)
        # The targets are scores of the averaged weights, so learning starts close to them.
        averaged = self.ensemble.discriminator.module.state_dict()
        for discriminator in self.discriminators:
            discriminator.load_state_dict(averaged)
        with torch.no_grad():
            self.ensemble.fit_scale(map(self._scores, _images(batches)))

    def _update_targets(self, batches: Iterable[Batch]) -> None:
        reconstructions = (self.reconstruct(views(images)) for images in _images(batches))
        self.ensemble.update_targets(reconstructions, self.config.score_statistics)

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        error = self.ensemble.error(self._scores(batch.images), batch.index)  # (b, v)
        return {"error": error.square().mean()}

    def _scores(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, v): one score per view."""
        both_views = views(images)  # (b * v, 1, h, w)
        return by_view(self.score(both_views, self.reconstruct(both_views)))


def zero_head_copy(discriminator: Discriminator) -> Discriminator:
    """A copy whose logits are zero until it has learned."""
    other = copy.deepcopy(discriminator)
    nn.init.zeros_(other.head.weight)
    nn.init.zeros_(other.head.bias)
    return other


def _images(batches: Iterable[Batch]) -> Iterator[Tensor]:
    return rebatched((batch.images for batch in batches), IMAGES_AT_ONCE)
