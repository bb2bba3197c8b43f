"""Synthetic lesions: a segmentation network learns to find lesions synthesised on healthy images.

A house version of a family of methods (`nn/lesions.py` cites them). The network's logits for a real
image are the heatmap, and their mean is the score.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor

from squid.methods.base import Batch, Method, MethodConfig, Objective, Shared, Stage
from squid.methods.lesion_segmentation import LesionConfig, segmentation_terms
from squid.nn.lesions import jittered, lesion_examples, lesion_noise
from squid.nn.noise import NoiseSpec
from squid.nn.unet import UNet


class SyntheticLesionsConfig(LesionConfig, MethodConfig):
    """One network and one objective."""

    name: Literal["synthetic_lesions"] = "synthetic_lesions"

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        self.check_size(self.size)
        return self


class SyntheticLesions(Method):
    """Score: mean logit of the segmentation, which is the heatmap."""

    Config: ClassVar[type[MethodConfig]] = SyntheticLesionsConfig
    title = "Synthetic lesions"
    paper = "after Tan et al., 2020, arXiv:2011.04197"

    def __init__(self, config: SyntheticLesionsConfig) -> None:
        super().__init__()
        self.config = config
        self.network = UNet(config.channels)

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
        )
        return (stage,)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        """Named terms."""
        changed, target = lesion_examples(batch.images, batch.noise, self.config.tasks)
        seen = jittered(changed, batch.noise, self.config.jitter)
        return segmentation_terms(self.network(seen), target)

    def score(self, images: Tensor) -> Tensor:
        return self.heatmap(images).mean((1, 2))

    def heatmap(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits.squeeze(1)
