"""PANDA: pretrained features made compact around their centre, and the distance to the nearest
features of normal images (Reiss et al., CVPR 2021)."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
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
from squid.nn.backbone import BackboneConfig, build_backbone, pooled
from squid.nn.conv import at_least_float32
from squid.nn.neighbours import nearest_squared


class PandaConfig(MethodConfig):
    """Defaults are the authors' early-stopping variant, published on ResNet152 at 224 pixels."""

    name: Literal["panda"] = "panda"
    backbone: BackboneConfig = BackboneConfig()
    frozen_blocks: Annotated[int, Field(ge=0)] = 3
    """The first blocks of the backbone keep their weights, the others are fine-tuned."""
    k: Annotated[int, Field(ge=1)] = 2
    """Neighbours."""
    epochs: Annotated[int, Field(ge=0)] = 15
    """0 leaves the features as they are: the method DN2."""
    batch_size: int = 32
    optimizer: OptimizerConfig = OptimizerConfig(
        kind="sgd", lr=1e-2, momentum=0.9, weight_decay=5e-5, clip=1e-3
    )


class Panda(Method):
    """Score: sum of squared distances to the k nearest training features."""

    Config: ClassVar[type[MethodConfig]] = PandaConfig
    title = "PANDA"
    paper = "Reiss et al., CVPR 2021, arXiv:2010.05903"
    training_only = ("centre",)

    centre: Tensor
    bank: Tensor

    def __init__(self, config: PandaConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone)
        self.register_buffer("centre", torch.zeros(self.backbone.channels[-1]))
        self.register_buffer("bank", torch.empty(0))

    # ---------------------------------------------------------------- training

    def begin(self, images: int) -> None:
        self.backbone.read_weights()

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        if config.epochs == 0:
            return ()
        compact = Objective(
            name="compact",
            parameters=self.backbone.parameters_after(config.frozen_blocks),
            loss=self._loss,
            optimizer=config.optimizer,
        )
        return (
            Stage(
                name="fine-tune",
                objectives=(compact,),
                batch_size=config.batch_size,
                epochs=config.epochs,
                prepare=self._find_centre,
            ),
        )

    def _find_centre(self, batches: Iterable[Batch]) -> None:
        """The mean feature under the original weights; it stays while they move."""
        self.centre.copy_(at_least_float32(self._features(batches)).mean(0))

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        features = at_least_float32(self._embed(batch.images))
        return {"compactness": (features - self.centre).square().mean()}

    def finalize(self, batches: Iterable[Batch]) -> None:
        self.bank = self._features(batches)

    def _features(self, batches: Iterable[Batch]) -> Tensor:
        return torch.cat([self._embed(batch.images) for batch in batches])  # (n, d)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        return nearest_squared(self._embed(images), self.bank, self.config.k).sum(1)

    def _embed(self, images: Tensor) -> Tensor:
        return pooled(self.backbone(images)[-1])
