"""Synthetic lesions: a segmentation network learns to find lesions synthesised on healthy images.

A house version of a family of methods (`nn/lesions.py` cites them). The network's logits for a real
image are the heatmap, and their mean is the score.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from squid.methods.base import Batch, Method, MethodConfig, Objective, Shared, Stage
from squid.methods.lesion_segmentation import LesionConfig, segmentation_terms
from squid.nn.gaussian import Moments
from squid.nn.lesions import jittered, lesion_examples, lesion_noise, placed
from squid.nn.lungs import Lungs, Region
from squid.nn.noise import NoiseSpec
from squid.nn.unet import UNet

SPREADS_BELOW = 2.0
"""So many spreads below the mean logit of healthy images a heatmap within the lungs is zero."""


class SyntheticLesionsConfig(LesionConfig, MethodConfig):
    """One network and one objective."""

    name: Literal["synthetic_lesions"] = "synthetic_lesions"
    region: Region = "image"
    """Where lesions are centred, and what counts: the whole image, or the lungs of frontal chest
    X-rays, which the mean of the training images shows."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        self.check_size(self.size)
        return self


class SyntheticLesions(Method):
    """Score: mean logit of the segmentation, which is the heatmap. Within the lungs, the heatmap is
    how far it lies above most logits of healthy images."""

    Config: ClassVar[type[MethodConfig]] = SyntheticLesionsConfig
    config: SyntheticLesionsConfig
    logit_mean: Tensor
    logit_spread: Tensor
    title = "Synthetic lesions"
    paper = "after Tan et al., 2020, arXiv:2011.04197"

    def __init__(self, config: SyntheticLesionsConfig) -> None:
        super().__init__()
        self.config = config
        self.network = UNet(config.channels)
        self.lungs = Lungs(config.size) if config.region == "lungs" else None
        if self.lungs is not None:
            self.register_buffer("logit_mean", torch.zeros(()))
            self.register_buffer("logit_spread", torch.ones(()))

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        return lesion_noise(b)

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        segmentation = Objective(
            name="segmentation",
            parameters=tuple(self.parameters()),
            loss=self.loss,
            optimizer=config.optimizer,
        )
        stage = Stage(
            name="train",
            objectives=(segmentation,),
            batch_size=config.batch_size,
            epochs=config.epochs,
            prepare=None if self.lungs is None else self._find_lungs,
        )
        return (stage,)

    def _find_lungs(self, batches: Iterable[Batch]) -> None:
        assert self.lungs is not None
        self.lungs.fit(batch.images for batch in batches)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        """Named terms."""
        noise = batch.noise if self.lungs is None else placed(batch.noise, self.lungs.places)
        changed, target = lesion_examples(batch.images, noise, self.config.tasks)
        seen = jittered(changed, batch.noise, self.config.jitter)
        return segmentation_terms(self.network(seen), target)

    def finalize(self, batches: Iterable[Batch]) -> None:
        """Measures the logits of the training images."""
        if self.lungs is None:
            return
        moments = Moments()
        for batch in batches:
            moments.add(self._logits(batch.images).reshape(-1, 1, 1))
        self.logit_mean.copy_(moments.mean().squeeze())
        spread = moments.covariance().squeeze().clamp_min(0.0).sqrt()
        # Logits that are all equal have no spread to divide by.
        self.logit_spread.copy_(torch.where(spread > 0, spread, 1.0))

    def score(self, images: Tensor) -> Tensor:
        logits = self._logits(images)
        return logits.mean((1, 2)) if self.lungs is None else self.lungs.mean(logits)

    def heatmap(self, images: Tensor) -> Tensor:
        logits = self._logits(images)
        if self.lungs is None:
            return logits
        above = (logits - self.logit_mean) / self.logit_spread + SPREADS_BELOW
        return self.lungs.shade(above.relu())

    def _logits(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits.squeeze(1)  # (b, h, w)
