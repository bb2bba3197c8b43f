"""PANDA: adapting pretrained features for anomaly detection and segmentation (Reiss et al., CVPR
2021, arXiv:2010.05903).

Pretrained features of normal images are fine-tuned to be compact around their centre; the score is
the distance to the nearest of them.
"""

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

EXACT = "donot_use_mm_for_euclid_dist"
"""A mode of `torch.cdist`: from a product of matrices, small distances lose all their digits."""


class PandaConfig(MethodConfig):
    """Defaults are the authors' early-stopping variant, published on ResNet152 at 224 pixels."""

    name: Literal["panda"] = "panda"
    backbone: BackboneConfig = BackboneConfig()
    frozen_blocks: Annotated[int, Field(ge=0)] = 3
    """The first blocks of the backbone keep their weights, the others are fine-tuned."""
    k: Annotated[int, Field(ge=1)] = 2
    """Nearest neighbours that the score sums over."""
    epochs: Annotated[int, Field(ge=0)] = 15
    """0 leaves the features as they are: the method DN2."""
    batch_size: int = 32
    optimizer: OptimizerConfig = OptimizerConfig(
        kind="sgd", lr=1e-2, momentum=0.9, weight_decay=5e-5, clip=1e-3
    )


def nearest_squared(queries: Tensor, features: Tensor, k: int, chunk: int = 8192) -> Tensor:
    """(b, d), (n, d) -> (b, k): squared distances to the `k` nearest features, nearest first.

    Features are compared in chunks, so that memory does not grow with their number.
    """
    best = queries.new_empty(queries.shape[0], 0)  # an exported batch has no len()
    for rows in torch.split(features, chunk):
        # The k nearest so far compete with those of the next chunk.
        best = torch.cat((best, _distances(queries, rows)), 1)
        best = best.topk(min(k, best.shape[1]), largest=False).values  # (b, k)
    return best.square()


def _distances(queries: Tensor, rows: Tensor) -> Tensor:
    """(b, d), (n, d) -> (b, n)."""
    if torch.onnx.is_in_onnx_export():  # ONNX has no operator for cdist
        norms: Tensor = torch.linalg.vector_norm(queries[:, None] - rows, dim=-1)
        return norms
    return torch.cdist(queries, rows, compute_mode=EXACT)


class Panda(Method):
    """Score: sum of squared distances to the k nearest training features."""

    Config: ClassVar[type[MethodConfig]] = PandaConfig
    title = "PANDA"
    paper = "Reiss et al., CVPR 2021, arXiv:2010.05903"
    training_only = ("centre",)

    centre: Tensor
    training_features: Tensor

    def __init__(self, config: PandaConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone)
        self.register_buffer("centre", torch.zeros(self.backbone.channels[-1]))
        # Its length is the number of training images, so it stays empty until the end of training.
        self.register_buffer("training_features", torch.empty(0))

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
        self.training_features = self._features(batches)

    def _features(self, batches: Iterable[Batch]) -> Tensor:
        return torch.cat([self._embed(batch.images) for batch in batches])  # (n, d)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        nearest = nearest_squared(self._embed(images), self.training_features, self.config.k)
        return nearest.sum(1)

    def _embed(self, images: Tensor) -> Tensor:
        return pooled(self.backbone(images)[-1])
