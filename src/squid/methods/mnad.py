"""MNAD: learning memory-guided normality for anomaly detection (Park et al., CVPR 2020,
arXiv:2003.13228), the variant that reconstructs.

The decoder gets each encoded cell together with its read of a memory of a few normal items. The
memory is updated in training only, so that a score does not depend on the images scored before.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import Field
from torch import Tensor, nn

from squid.methods.base import Batch, MethodConfig, OptimizerConfig, Shared
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import to_signed, to_unit
from squid.nn.conv import BatchNorm, at_least_float32, conv3x3
from squid.nn.memory import Shrinkage, read
from squid.nn.ranks import ALONE, Ranks

MARGIN = 1.0
SOFTMAX = Shrinkage(kind="none")
TINY = 1e-10


class MnadConfig(ReconstructionConfig):
    """Defaults are the authors', but for the batch (theirs is 4, of images with 256 pixels a
    side)."""

    name: Literal["mnad"] = "mnad"
    channels: tuple[Count, ...] = (64, 128, 256, 512)
    """The last is the width of a memory item; the map is halved before each but the first."""
    items: Annotated[int, Field(ge=2)] = 10
    compactness_weight: float = 0.01
    """Weight of the distance between a query and its nearest item."""
    separateness_weight: float = 0.01
    """Weight of the margin between the nearest and the second nearest item."""
    score_weight: float = 0.7
    """Weight of the reconstruction in the score; the rest is the distance to the memory."""
    epochs: Count = 60
    batch_size: int = 16
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-4, schedule="cosine", final_lr=0.0)

    @property
    def multiple(self) -> int:
        return int(2 ** (len(self.channels) - 1))


class PrototypeMemory(nn.Module):
    """Items (n, d): unit vectors that stand for all normal cells, updated without gradients.
    Queries are maps (b, d, h, w) whose cells are unit vectors."""

    items: Tensor
    ranks: Ranks = ALONE
    pending: Tensor | None = None
    """Cells of the last `losses`, by which `commit` will update the items."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.register_buffer("items", F.normalize(torch.rand(items, width), dim=1))

    def forward(self, queries: Tensor) -> Tensor:
        """Each cell as a softmax-weighted sum of the items, without gradient."""
        cells = rearrange(queries.detach(), "b d h w -> b (h w) d")
        found = read(cells, self.items[None], SOFTMAX)
        return rearrange(found, "b (h w) d -> b d h w", h=queries.shape[2])

    def losses(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Compactness: cells lie close to their nearest item. Separateness: closer than to the
        second nearest, by a margin."""
        cells = _cells(queries)
        self.pending = cells.detach()
        nearest, second = self._nearest(cells, 2).unbind(1)
        compactness = F.mse_loss(cells, nearest)
        return compactness, F.triplet_margin_loss(cells, nearest, second, margin=MARGIN)

    def distance(self, queries: Tensor) -> Tensor:
        """(b,): how far an image's cells are from their nearest items, as in compactness."""
        cells = _cells(queries)
        squares = (cells - self._nearest(cells, 1)[:, 0]).square()
        return rearrange(squares, "(b c) d -> b (c d)", b=queries.shape[0]).mean(1)

    def _nearest(self, cells: Tensor, k: int) -> Tensor:
        """The k most similar items of each cell, nearest first: (c, d) -> (c, k, d)."""
        with torch.autocast(cells.device.type, enabled=False):  # ranking needs the precision
            # The choice has no gradient; the losses reach the cells through the distances.
            similarity = cells.detach() @ self.items.T  # (c, n)
        return self.items[similarity.topk(k, dim=1).indices]

    @torch.no_grad()
    def commit(self) -> None:
        """Moves each item towards the pending cells of all ranks that are nearest to it, the more
        similar the further."""
        assert self.pending is not None, "commit() follows losses()"
        cells = self.ranks.gather(self.pending)
        similarity = cells @ self.items.T  # (c, n)
        # One-hot assignment of each cell to its nearest item.
        numbers = torch.arange(len(self.items), device=cells.device)
        own = similarity.argmax(1, keepdim=True) == numbers  # (c, n)
        # The softmax over cells, divided by its largest value.
        weights = own * (similarity - similarity.amax(0)).exp()
        self.items.copy_(F.normalize(self.items + weights.T @ cells, dim=1))


def _cells(queries: Tensor) -> Tensor:
    """(b, d, h, w) -> (b*h*w, d)."""
    return at_least_float32(rearrange(queries, "b d h w -> (b h w) d"))


def _encoder(channels: tuple[int, ...]) -> nn.Sequential:
    """Two convolutions a level, then pooling; the last level ends without activation."""
    inputs, levels = 1, list[nn.Module]()
    for width in channels[:-1]:
        levels += [*_convolution(inputs, width), *_convolution(width, width), nn.MaxPool2d(2)]
        inputs = width
    levels += [*_convolution(inputs, channels[-1]), conv3x3(channels[-1], channels[-1])]
    return nn.Sequential(*levels)


def _decoder(channels: tuple[int, ...]) -> nn.Sequential:
    """From cells joined with their reads: each doubling with two convolutions after it, to
    [-1, 1]."""
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


class Mnad(ReconstructionMethod):
    """Score: the peak signal-to-noise ratio of the reconstruction and the distance to the memory,
    each scaled to [0, 1] over normal images."""

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
        # The ranges of the two parts of the score over normal images.
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

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        return self._decode(self._encode(to_signed(images)))

    def score(self, images: Tensor) -> Tensor:
        # Both parts as shares of their range over normal images; others may lie outside [0, 1].
        extent = (self.highest - self.lowest).clamp_min(TINY)
        noise_ratio, distance = ((self._parts(images) - self.lowest) / extent).unbind(1)
        weight = self.config.score_weight
        return weight * (1.0 - noise_ratio) + (1.0 - weight) * distance

    def _parts(self, images: Tensor) -> Tensor:
        """(b, 2): peak signal-to-noise ratio of the reconstruction, mean squared distance to the
        memory."""
        queries = self._encode(to_signed(images))
        error = (images - to_unit(self._decode(queries))).square().mean((1, 2, 3))
        # Pixels run from 0 to 1, so the peak of the ratio is one.
        ratio = -10.0 * error.clamp_min(TINY).log10()
        return torch.stack((ratio, self.memory.distance(queries)), dim=1)

    def _encode(self, signed: Tensor) -> Tensor:
        return F.normalize(self.encoder(signed), dim=1)

    def _decode(self, queries: Tensor) -> Tensor:
        reconstruction: Tensor = self.decoder(torch.cat((queries, self.memory(queries)), dim=1))
        return reconstruction
