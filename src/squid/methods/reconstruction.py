"""What the methods have in common that reconstruct an image and score its squared error."""

from typing import Annotated, Self

import torch.nn.functional as F
from pydantic import Field, model_validator
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
from squid.nn.autoencoder import to_signed, to_unit

Count = Annotated[int, Field(ge=1)]


class ReconstructionConfig(MethodConfig):
    """One objective over one network."""

    channels: tuple[Count, ...]
    """Channels of the encoder's levels; the decoder mirrors them."""
    epochs: Count
    batch_size: Annotated[int, Field(ge=2)]
    """At least two, for batch normalisation."""
    optimizer: OptimizerConfig

    @property
    def multiple(self) -> int:
        """What `size` must be a multiple of: every level halves the map."""
        return int(2 ** len(self.channels))

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.size % self.multiple:
            raise ValueError(f"size {self.size} must be a multiple of {self.multiple}.")
        return self


class DenseConfig(ReconstructionConfig):
    """An auto-encoder whose code is a vector, with the defaults of MedIAnomaly."""

    channels: tuple[Count, ...] = (16, 32, 64, 64)
    hidden: Count = 1024
    """Units of the layer between the convolutions and the code."""
    latent: Count = 16
    """Length of the code. A long one lets the decoder reconstruct anomalies."""
    epochs: Count = 250
    batch_size: Annotated[int, Field(ge=2)] = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3)


class ReconstructionMethod(Method):
    """The heatmap is the squared error of each pixel, the score its mean."""

    config: ReconstructionConfig

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        objective = Objective(
            name="reconstruction",
            parameters=tuple(self.parameters()),
            loss=self.loss,
            optimizer=config.optimizer,
            after=self.after_update,
        )
        stage = Stage(
            name="train",
            objectives=(objective,),
            batch_size=config.batch_size,
            epochs=config.epochs,
        )
        return (stage,)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        """Named, weighted terms."""
        reconstruction = self.reconstruct_signed(batch.images)
        return {"error": F.mse_loss(reconstruction, to_signed(batch.images))}

    def after_update(self) -> None:
        """Called after each update of the parameters."""

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) in [0, 1] -> (b, 1, h, w), the reconstruction in about [-1, 1]."""
        raise NotImplementedError

    def score(self, images: Tensor) -> Tensor:
        return self.heatmap(images).mean((1, 2))

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - to_unit(self.reconstruct_signed(images))).square().squeeze(1)

    def reconstruct(self, images: Tensor) -> Tensor:
        return to_unit(self.reconstruct_signed(images)).clamp(0.0, 1.0)
