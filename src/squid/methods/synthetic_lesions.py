"""Synthetic lesions: a segmentation network learns to find lesions synthesised on healthy images.

A house version of a family of methods (`nn/lesions.py` cites them). The network's logits for a real
image are the heatmap, and their mean is the score.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.lesions import Task, jittered, lesion_examples, lesion_noise
from squid.nn.noise import NoiseSpec
from squid.nn.unet import UNet, soft_dice_loss


class SyntheticLesionsConfig(MethodConfig):
    """Defaults are ours, from trials on adults of RSNA in PA view at 128 pixels."""

    name: Literal["synthetic_lesions"] = "synthetic_lesions"
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)] = ("paste", "same", "opacity", "warp")
    """Kinds of lesions: another place or the same place of another image, a brighter or darker
    blob, a deformation. A quarter of each batch is left as it is, the rest is shared equally."""
    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=2)] = (32, 64, 128, 256, 256)
    """Channels of the U-Net's levels, each half as large as the one before."""
    jitter: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.15
    """Largest relative change of contrast, and change of brightness, of a training image."""
    epochs: PositiveInt = 60
    batch_size: Annotated[int, Field(ge=2)] = 64
    """At least two, for batch normalisation and because one image is the source of another's
    lesion."""
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3, final_lr=0.0, schedule="cosine")

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        multiple = 2 ** (len(self.channels) - 1)
        if self.size < 2 * multiple or self.size % multiple:
            raise ValueError(
                f"size {self.size} must be a multiple of {multiple}, from {2 * multiple} on."
            )
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("tasks must name each kind once.")
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
        return {**lesion_noise(b), "jitter": NoiseSpec((b, 2), "uniform")}

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
        logits = self.network(jittered(changed, batch.noise["jitter"], self.config.jitter))
        return {
            "cross_entropy": F.binary_cross_entropy_with_logits(logits, target),
            "soft_dice": soft_dice_loss(logits, target),
        }

    def score(self, images: Tensor) -> Tensor:
        return self.heatmap(images).mean((1, 2))

    def heatmap(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits.squeeze(1)
