"""PaDiM: patch distribution modeling for anomaly detection and localization (Defard et al., ICPR
2020, arXiv:2011.08785).

A Gaussian of pretrained features at every location of the image, fitted in closed form.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import Field
from torch import Tensor

from squid.errors import ConfigError
from squid.methods.base import Batch, Method, MethodConfig
from squid.nn.backbone import BackboneConfig, build_backbone
from squid.nn.blur import gaussian_blur
from squid.nn.gaussian import Gaussian, Moments


class PadimConfig(MethodConfig):
    """Published on ResNet18 (100 channels kept) and WideResNet50 (550) at 224 pixels."""

    name: Literal["padim"] = "padim"
    backbone: BackboneConfig = BackboneConfig()
    blocks: tuple[int, ...] = (2, 3, 4)
    """Blocks whose outputs are concatenated, on the grid of the first of them."""
    keep: Annotated[int, Field(ge=1)] = 100
    """Number of channels kept, chosen at random."""
    seed: int | None = None
    """Seed of the choice of channels; the training's when left out, so that trainings differ."""
    ridge: float = 0.01
    """Added to the variances."""
    sigma: float = 4.0
    """Standard deviation of the map's smoothing, in pixels."""
    image_score: Literal["max", "top_percent"] = "max"
    """`max` of the map (published), or the mean of its highest 1 %, less driven by markers and
    borders."""


class Padim(Method):
    """Score: the largest Mahalanobis distance of any location."""

    Config: ClassVar[type[MethodConfig]] = PadimConfig
    title = "PaDiM"
    paper = "Defard et al., ICPR 2020, arXiv:2011.08785"

    kept: Tensor

    def __init__(self, config: PadimConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone)
        self.gaussian = Gaussian()
        self.backbone.check_blocks(config.blocks)
        channels = sum(self.backbone.channels[block - 1] for block in config.blocks)
        if config.keep > channels:
            raise ConfigError(f"keep = {config.keep} exceeds the {channels} channels there are.")
        # The global generator holds the seed of the training.
        generator = torch.default_generator
        if config.seed is not None:
            generator = torch.Generator().manual_seed(config.seed)
        kept = torch.randperm(channels, generator=generator, device="cpu")[: config.keep]
        self.register_buffer("kept", kept)

    # ----------------------------------------------------------------- fitting

    def begin(self, images: int) -> None:
        self.backbone.read_weights()

    def finalize(self, batches: Iterable[Batch]) -> None:
        # Sums instead of features: those of all images would not fit in memory.
        moments = Moments()
        for batch in batches:
            moments.add(self._embed(batch.images)[0])
        covariance = moments.covariance()
        # A ridge makes the covariance of few images invertible.
        covariance.diagonal(dim1=1, dim2=2).add_(self.config.ridge)
        self.gaussian.fit(moments.mean(), covariance)

    def _embed(self, images: Tensor) -> tuple[Tensor, int]:
        """(b, p, d) features at every location, and the height of their grid."""
        maps = self.backbone(images, max(self.config.blocks))
        chosen = [maps[block - 1] for block in self.config.blocks]
        # Coarser blocks are repeated up to the grid of the first one.
        grid = chosen[0].shape[-2:]
        joint = torch.cat([F.interpolate(m, grid, mode="nearest") for m in chosen], 1)
        kept = joint.index_select(1, self.kept)  # (b, d, h', w')
        return rearrange(kept, "b d h w -> b (h w) d"), grid[0]

    # ----------------------------------------------------------------- scoring

    def heatmap(self, images: Tensor) -> Tensor:
        features, height = self._embed(images)
        distance = self.gaussian.distance(features)  # (b, p)
        grid = rearrange(distance, "b (h w) -> b 1 h w", h=height)
        maps = F.interpolate(grid, images.shape[-2:], mode="bilinear")[:, 0]  # (b, h, w)
        return gaussian_blur(maps, self.config.sigma)

    def score(self, images: Tensor) -> Tensor:
        pixels = self.heatmap(images).flatten(1)  # (b, h w)
        if self.config.image_score == "max":
            return pixels.amax(1)
        # At least one pixel, for maps of fewer than a hundred.
        return pixels.topk(max(1, pixels.shape[1] // 100)).values.mean(1)
