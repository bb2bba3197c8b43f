"""MNAD: memory-guided normality for anomaly detection (Park et al., CVPR 2020), the variant that
reconstructs. Its memory learns in training only, so that scores do not depend on their order."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from squid.methods.base import Batch, MethodConfig, OptimizerConfig, Shared
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import to_signed, to_unit
from squid.nn.conv import BatchNorm, conv3x3
from squid.nn.prototypes import PrototypeMemory

TINY = 1e-10


class MnadConfig(ReconstructionConfig):
    """Defaults are the authors', but for the batch (theirs is 4, of images with 256 pixels a
    side)."""

    name: Literal["mnad"] = "mnad"
    channels: tuple[Count, ...] = (64, 128, 256, 512)
    """The last is the width of a memory item; the map is halved before each but the first."""
    items: Annotated[int, Field(ge=2)] = 10
    compactness_weight: float = 0.01
    """Of the distance between a query and its nearest item."""
    separateness_weight: float = 0.01
    """Of the margin between the nearest and the second nearest item."""
    score_weight: float = 0.7
    """Of the reconstruction in the score; the rest is the distance to the memory."""
    epochs: Count = 60
    batch_size: int = 16
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-4, schedule="cosine", final_lr=0.0)

    @property
    def multiple(self) -> int:
        return int(2 ** (len(self.channels) - 1))


class Mnad(ReconstructionMethod):
    """An encoder without skips, whose decoder sees each cell beside what the memory makes of it."""

    Config: ClassVar[type[MethodConfig]] = MnadConfig
    title = "MNAD"
    paper = "Park et al., CVPR 2020, arXiv:2003.13228"
    lowest: Tensor
    highest: Tensor

    def __init__(self, config: MnadConfig) -> None:
        super().__init__()
        self.config: MnadConfig = config
        self.encoder = _encoder(config.channels)
        self.memory = PrototypeMemory(config.items, config.channels[-1])
        self.decoder = _decoder(config.channels)
        # Of the two parts of the score, over normal images.
        self.register_buffer("lowest", torch.zeros(2))
        self.register_buffer("highest", torch.ones(2))

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config, signed = self.config, to_signed(batch.images)
        queries = self._encode(signed)  # (b, d, h, w)
        compactness, separateness = self.memory.losses(queries)
        return {
            "error": F.mse_loss(self._decode(queries), signed),
            "compactness": config.compactness_weight * compactness,
            "separateness": config.separateness_weight * separateness,
        }

    def after_update(self) -> None:
        self.memory.commit()

    def finalize(self, batches: Iterable[Batch]) -> None:
        parts = torch.cat([self._parts(batch.images) for batch in batches])  # (n, 2)
        self.lowest.copy_(parts.amin(0))
        self.highest.copy_(parts.amax(0))

    def redraw(self, images: Tensor) -> Tensor:
        return self._decode(self._encode(to_signed(images)))

    def score(self, images: Tensor) -> Tensor:
        extent = (self.highest - self.lowest).clamp_min(TINY)
        noise_ratio, distance = ((self._parts(images) - self.lowest) / extent).unbind(1)
        weight = self.config.score_weight
        return weight * (1.0 - noise_ratio) + (1.0 - weight) * distance

    def _parts(self, images: Tensor) -> Tensor:
        """(b, 2): peak signal-to-noise ratio of the drawing, mean squared distance to the
        memory."""
        queries = self._encode(to_signed(images))
        error = (images - to_unit(self._decode(queries))).square().mean((1, 2, 3))
        ratio = -10.0 * error.clamp_min(TINY).log10()
        return torch.stack((ratio, self.memory.distance(queries)), dim=1)

    def _encode(self, signed: Tensor) -> Tensor:
        return F.normalize(self.encoder(signed), dim=1)

    def _decode(self, queries: Tensor) -> Tensor:
        drawing: Tensor = self.decoder(torch.cat((queries, self.memory(queries)), dim=1))
        return drawing


def _encoder(channels: tuple[int, ...]) -> nn.Sequential:
    """Two convolutions a level, then pooling; the last level ends without activation."""
    inputs, levels = 1, list[nn.Module]()
    for width in channels[:-1]:
        levels += [*_convolution(inputs, width), *_convolution(width, width), nn.MaxPool2d(2)]
        inputs = width
    levels += [*_convolution(inputs, channels[-1]), conv3x3(channels[-1], channels[-1])]
    return nn.Sequential(*levels)


def _decoder(channels: tuple[int, ...]) -> nn.Sequential:
    """From cells beside their reads: each doubling with two convolutions after it, to [-1, 1]."""
    *widths, bottleneck = channels
    levels = [*_convolution(2 * bottleneck, bottleneck), *_convolution(bottleneck, bottleneck)]
    inputs = bottleneck
    for width in reversed(widths):
        levels += _doubling(inputs, width)
        levels += [*_convolution(width, width), *_convolution(width, width)]
        inputs = width
    return nn.Sequential(*levels, conv3x3(inputs, 1), nn.Tanh())


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [conv3x3(inputs, outputs), BatchNorm(outputs), nn.ReLU()]


def _doubling(inputs: int, outputs: int) -> list[nn.Module]:
    up = nn.ConvTranspose2d(inputs, outputs, 3, stride=2, padding=1, output_padding=1)
    return [up, BatchNorm(outputs), nn.ReLU()]
