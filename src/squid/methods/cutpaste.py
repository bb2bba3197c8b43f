"""CutPaste: a network that tells pasted images from whole ones, and a Gaussian over what it sees
in normal images (Li et al., CVPR 2021)."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    NoiseSpec,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.backbone import pooled
from squid.nn.conv import BatchNorm, at_least_float32
from squid.nn.gaussian import Gaussian, ledoit_wolf
from squid.nn.pasting import Cut, paste
from squid.nn.resnet import ResNet18


class CutPasteConfig(MethodConfig):
    """Defaults are the paper's 3-way setting, published at 256 pixels."""

    name: Literal["cutpaste"] = "cutpaste"
    ways: Literal[2, 3] = 3
    """2 tells whole from cut-paste, 3 also from scars."""
    width: int = 64
    """Channels of ResNet18's first level."""
    head_layers: int = 1
    """Hidden layers as wide as the embedding, before the one of `head_width`."""
    head_width: int = 128
    area: tuple[float, float] = (0.02, 0.15)
    """Of a cut patch, as a share of the image."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    scar_width: tuple[float, float] = (2, 16)
    """Of a scar, in pixels of a 256-pixel image, as its height."""
    scar_height: tuple[float, float] = (10, 25)
    scar_angle: float = 45.0
    """Largest turn in either direction, in degrees."""
    jitter: float = 0.1
    """Largest relative change of a patch's brightness and contrast."""
    steps: int = 65_536
    batch_size: int = 32
    """Whole images of a step; the network sees each of them `ways` times."""
    optimizer: OptimizerConfig = OptimizerConfig(
        kind="sgd", lr=0.03, final_lr=0.0, schedule="cosine", momentum=0.9, weight_decay=3e-5
    )


class CutPaste(Method):
    """Score: Mahalanobis distance of the embedding from those of normal images."""

    Config: ClassVar[type[MethodConfig]] = CutPasteConfig
    title = "CutPaste"
    paper = "Li et al., CVPR 2021, arXiv:2104.04015"
    training_only = ("head.",)

    def __init__(self, config: CutPasteConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ResNet18(config.width)
        self.head = _head(self.encoder.channels, config)
        self.gaussian = Gaussian()

    # ---------------------------------------------------------------- training

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        names = ("cut", "scar")[: self.config.ways - 1]
        return {name: NoiseSpec((b, 9), "uniform") for name in names}

    def stages(self) -> tuple[Stage, ...]:
        classify = Objective(
            name="classify",
            parameters=(*self.encoder.parameters(), *self.head.parameters()),
            loss=self._loss,
            optimizer=self.config.optimizer,
            compilable=False,  # fused by Inductor, pasted patches held pixels of other places
        )
        config = self.config
        return (
            Stage(
                name="train",
                objectives=(classify,),
                batch_size=config.batch_size,
                steps=config.steps,
            ),
        )

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        views = self.views(batch)
        maps = F.adaptive_avg_pool2d(self.encoder(torch.cat(views)), 1)  # (ways * b, c, 1, 1)
        logits = at_least_float32(self.head(maps).flatten(1))  # (ways * b, ways)
        kinds = torch.arange(len(views), device=logits.device)
        labels = kinds.repeat_interleave(len(batch.images))
        return {"cross_entropy": F.cross_entropy(logits, labels)}

    def views(self, batch: Batch) -> list[Tensor]:
        """The images whole, with a pasted patch, and (3-way) with a pasted scar."""
        images, noise = batch.images, batch.noise
        views = [images, paste(images, self._cut(noise["cut"]))]
        if self.config.ways == 3:
            views.append(paste(images, self._scar(noise["scar"])))
        return views

    def _cut(self, draws: Tensor) -> Cut:
        config = self.config
        area = _between(config.area, draws[:, 0]) * config.size**2
        low, high = map(math.log, config.aspect)
        aspect = _between((low, high), draws[:, 1]).exp()
        height, width = (area / aspect).sqrt(), (area * aspect).sqrt()
        return self._patch(height, width, torch.zeros_like(area), draws)

    def _scar(self, draws: Tensor) -> Cut:
        config, scale = self.config, self.config.size / 256
        height = _between(config.scar_height, draws[:, 0]) * scale
        width = _between(config.scar_width, draws[:, 1]) * scale
        largest = math.radians(config.scar_angle)
        return self._patch(height, width, _between((-largest, largest), draws[:, 8]), draws)

    def _patch(self, height: Tensor, width: Tensor, angle: Tensor, draws: Tensor) -> Cut:
        factors = _between((1 - self.config.jitter, 1 + self.config.jitter), draws[:, 6:8])
        return Cut(
            height=height.round().clamp_min(1),
            width=width.round().clamp_min(1),
            source=draws[:, 2:4],
            target=draws[:, 4:6],
            angle=angle,
            brightness=factors[:, 0],
            contrast=factors[:, 1],
        )

    def finalize(self, batches: Iterable[Batch]) -> None:
        embeddings = torch.cat([self._embed(batch.images) for batch in batches])  # (n, d)
        self.gaussian.fit(embeddings.mean(0)[None], ledoit_wolf(embeddings)[None])

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        return self.gaussian.distance(self._embed(images)[:, None])[:, 0]

    def _embed(self, images: Tensor) -> Tensor:
        return F.normalize(pooled(self.encoder(images)))


def _head(inputs: int, config: CutPasteConfig) -> nn.Sequential:
    """1x1 convolutions, as linear layers, because the batch normalisation of maps knows ranks."""
    widths = [inputs] * (1 + config.head_layers) + [config.head_width]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 1, bias=False), BatchNorm(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(config.head_width, config.ways, 1))


def _between(limits: tuple[float, float], draws: Tensor) -> Tensor:
    low, high = limits
    return low + (high - low) * draws
