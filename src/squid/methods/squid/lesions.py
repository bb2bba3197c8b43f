"""SQUID's stage of synthetic lesions (after DRAEM, Zavrtanik et al., ICCV 2021, arXiv:2108.07610).

The generator is fixed. A U-Net sees an image with lesions and its reconstruction from healthy
features, and learns where the lesions are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from squid.methods.base import Batch, Objective, Shared, Stage
from squid.methods.lesion_segmentation import LesionConfig, segmentation_terms
from squid.nn.lesions import jittered, lesion_examples, placed
from squid.nn.lungs import Lungs
from squid.nn.unet import UNet


@dataclass(frozen=True)
class LesionStage:
    """The U-Net with what it sees."""

    config: LesionConfig
    network: UNet
    reconstruct: Callable[[Tensor], Tensor]
    """The generator in eval mode."""
    lungs: Lungs | None = None
    """Where lesions are centred; None for the whole image."""

    def stage(self) -> Stage:
        objective = Objective(
            name="lesions",
            parameters=tuple(self.network.parameters()),
            loss=self._loss,
            optimizer=self.config.optimizer,
            compilable=False,  # the generator is in eval mode while the U-Net is in training mode
        )
        return Stage(
            name="lesions",
            objectives=(objective,),
            batch_size=self.config.batch_size,
            epochs=self.config.epochs,
            prepare=None if self.lungs is None else self._find_lungs,
            snapshots=False,
        )

    def _find_lungs(self, batches: Iterable[Batch]) -> None:
        assert self.lungs is not None
        self.lungs.fit(batch.images for batch in batches)

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        noise = batch.noise if self.lungs is None else placed(batch.noise, self.lungs.places)
        changed, target = lesion_examples(batch.images, noise, self.config.tasks)
        # Both channels get the same jitter, so that their difference stays what it is.
        both = torch.cat((changed, self.reconstruct(changed).to(changed.dtype)), 1)
        seen = jittered(both, batch.noise, self.config.jitter)
        return segmentation_terms(self.network(seen), target)
