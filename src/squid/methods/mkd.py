"""M-KD: multiresolution knowledge distillation for anomaly detection (Salehi et al., CVPR 2021,
arXiv:2011.11108).

A small cloner learns to reproduce, on normal images, the features of a pretrained teacher; on
anomalies the two disagree.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.backbone import VGG16_WIDTHS, BackboneConfig, build_backbone
from squid.nn.blur import gaussian_blur
from squid.nn.conv import BatchNorm, at_least_float32


class MkdConfig(MethodConfig):
    """Defaults are the authors' for radiology-like images: 128 pixels, plain [0, 1]."""

    name: Literal["mkd"] = "mkd"
    backbone: BackboneConfig = BackboneConfig()
    """The teacher; published with VGG16."""
    normalize: bool = False
    """Whether the teacher's images are shifted and scaled as for ImageNet."""
    width: int = 16
    """Channels of the cloner's layers, except the last of a block, which has the teacher's."""
    train_blocks: tuple[int, ...] = (2, 3, 4, 5)
    """Blocks whose outputs are distilled."""
    score_blocks: tuple[int, ...] = (3, 4, 5)
    distance_weight: float = 0.01
    """Weight of the squared distance relative to the cosine; the authors take 0.5 for MVTec."""
    sigma: float = 4.0
    """Standard deviation of the heatmap's smoothing, in pixels."""
    epochs: int = 200
    batch_size: int = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3)


class Cloner(nn.Module):
    """VGG16's shape with few channels, but with the teacher's at the end of each block but the
    first."""

    def __init__(self, width: int, channels: Sequence[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        inputs = 3
        for i, layers in enumerate(VGG16_WIDTHS[: len(channels)]):
            # Blocks that are compared need the teacher's channels; the first is not compared.
            last = channels[i] if i else width
            self.blocks.append(_cloner_block(inputs, [width] * (len(layers) - 1), last))
            inputs = last

    def forward(self, images: Tensor, blocks: int) -> list[Tensor]:
        """(b, 1, h, w) -> the pooled map of each of the first `blocks` blocks."""
        x = images.expand(-1, 3, -1, -1)
        maps: list[Tensor] = []
        for block in self.blocks[:blocks]:
            x = block(x)
            maps.append(x)
        return maps


def _cloner_block(inputs: int, hidden: Sequence[int], last: int) -> nn.Sequential:
    """No batch normalisation before the pooling: the teacher's outputs are not normalised."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [_convolution(inputs, width), BatchNorm(width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, _convolution(inputs, last), nn.ReLU(), nn.MaxPool2d(2))


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.xavier_normal_(layer.weight)
    return layer


class Mkd(Method):
    """Score: distance of the cloner's features from the teacher's; heatmap: its gradient at each
    pixel."""

    Config: ClassVar[type[MethodConfig]] = MkdConfig
    title = "M-KD"
    paper = "Salehi et al., CVPR 2021, arXiv:2011.11108"

    def __init__(self, config: MkdConfig) -> None:
        super().__init__()
        self.config = config
        self.teacher = build_backbone(config.backbone, normalize=config.normalize)
        for blocks in (config.train_blocks, config.score_blocks):
            self.teacher.check_blocks(blocks)
        self.teacher.requires_grad_(False)
        self.cloner = Cloner(config.width, self.teacher.channels)

    # ---------------------------------------------------------------- training

    def begin(self, images: int) -> None:
        self.teacher.read_weights()

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        clone = Objective(
            name="clone",
            parameters=tuple(self.cloner.parameters()),
            loss=self._loss,
            optimizer=config.optimizer,
        )
        return (
            Stage(
                name="train",
                objectives=(clone,),
                batch_size=config.batch_size,
                epochs=config.epochs,
            ),
        )

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        directions, distances = self._differences(batch.images, self.config.train_blocks)
        return {"direction": directions.mean(), "distance": distances.mean()}

    def _differences(self, images: Tensor, blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(b,), (b,): one minus the cosine of whole maps, and the weighted mean squared distance,
        each summed over blocks."""
        # Neither network computes blocks beyond the last that is compared.
        depth = max(blocks)
        teacher, cloner = self.teacher(images, depth), self.cloner(images, depth)
        pairs = [(_flat(cloner[block - 1]), _flat(teacher[block - 1])) for block in blocks]
        directions = torch.stack([1 - F.cosine_similarity(ours, theirs) for ours, theirs in pairs])
        distances = torch.stack([(ours - theirs).square().mean(1) for ours, theirs in pairs])
        return directions.sum(0), self.config.distance_weight * distances.sum(0)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        directions, distances = self._differences(images, self.config.score_blocks)
        return directions + distances

    def heatmap(self, images: Tensor) -> Tensor:
        # Scoring runs under no_grad; this map is a gradient.
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.score(images).sum(), images)
        return gaussian_blur(gradient.abs().sum(1), self.config.sigma)


def _flat(maps: Tensor) -> Tensor:
    """(b, c, h, w) -> (b, c * h * w)."""
    return at_least_float32(maps).flatten(1)
