"""What the methods have in common that learn to find synthetic lesions (`nn/lesions.py`)."""

from typing import Annotated, Self

import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from squid.config import Config
from squid.methods.base import OptimizerConfig
from squid.nn.lesions import Task
from squid.nn.unet import soft_dice_loss


class LesionConfig(Config):
    """The lesions, the U-Net that learns to find them, and its training. Defaults are ours, from
    trials on adults of RSNA in PA view at 128 pixels."""

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
    def _check_tasks(self) -> Self:
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("tasks must name each kind once.")
        return self

    def check_size(self, size: int) -> None:
        """An error where the U-Net cannot halve images of that side so often."""
        multiple = 2 ** (len(self.channels) - 1)
        if size < 2 * multiple or size % multiple:
            raise ValueError(
                f"size {size} must be a multiple of {multiple}, from {2 * multiple} on."
            )


def segmentation_terms(logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Both losses of a segmentation, on logits and target (b, 1, h, w)."""
    return {
        "cross_entropy": F.binary_cross_entropy_with_logits(logits, target),
        "soft_dice": soft_dice_loss(logits, target),
    }
