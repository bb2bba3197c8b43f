"""MemAE: memorizing normality to detect anomaly (Gong et al., ICCV 2019, arXiv:1904.02639).

An auto-encoder whose decoder gets nothing but slots of a learned memory, so that it can reconstruct
normal patterns only.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from squid.methods.base import Batch, MethodConfig, OptimizerConfig, Shared
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import DenseDecoder, DenseEncoder, doublings, halvings, to_signed
from squid.nn.conv import at_least_float32
from squid.nn.memory import TINY, hard_shrink


class MemorySettings(ReconstructionConfig):
    """Defaults are the authors' for video, with convolutions in two dimensions."""

    channels: tuple[Count, ...] = (96, 128, 256, 256)
    slots: Count = 200
    """The authors have 2000 for video, 100 to 500 for small images."""
    threshold: float = 0.005
    """Weights below it are dropped; the paper advises between one and three shares of a slot,
    1 / slots."""
    entropy_weight: float = 0.0002
    epochs: Count = 100
    batch_size: int = 14
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-4)


class MemAEConfig(MemorySettings):
    name: Literal["memae"] = "memae"
    query: Literal["cell", "image"] = "cell"
    """The query of the memory: each cell of the bottleneck (the authors), or the image as one
    short vector (MedIAnomaly). A grid of cells can come close to a copy of the image."""
    hidden: Count = 1024
    """Units of the layer before the vector; with `query = "image"` only."""
    code: Count = 16
    """Values of the vector."""


class SparseReads(nn.Module):
    """A learned memory: tokens are replaced by weighted sums of its slots."""

    def __init__(self, slots: int, channels: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        # Small uniform values, as torch initialises a linear layer of that width.
        bound = channels**-0.5
        self.slots = nn.Parameter(torch.empty(slots, channels).uniform_(-bound, bound))

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(b, t, d) -> what is found (b, t, d), and the weights of the slots (b, t, n)."""
        with torch.autocast(tokens.device.type, enabled=False):  # ranking slots needs precision
            slots = at_least_float32(self.slots)  # (n, d)
            similarity = torch.einsum("btd,nd->btn", at_least_float32(tokens), slots)
            weights = shrink_to_some(similarity, self.threshold)
            return (weights @ slots).to(tokens.dtype), weights


class MemoryAutoEncoder(SparseReads):
    """Each cell of the bottleneck is replaced by a weighted sum of slots before it is decoded."""

    def __init__(self, channels: Sequence[int], *, slots: int, threshold: float) -> None:
        super().__init__(slots, channels[-1], threshold)
        self.encoder = halvings(channels, kernel=3, slope=0.2)
        self.decoder = doublings(channels, kernel=3, slope=0.2)

    def forward(self, signed: Tensor) -> tuple[Tensor, Tensor]:
        """(b, 1, h, w) -> the reconstruction (b, 1, h, w), and the weights of the slots
        (b, cells, n)."""
        bottleneck = self.encoder(signed)  # (b, d, h, w)
        found, weights = self.read(rearrange(bottleneck, "b d h w -> b (h w) d"))
        found = rearrange(found, "b (h w) d -> b d h w", h=bottleneck.shape[2])
        return self.decoder(found), weights


class MemoryOfVectors(SparseReads):
    """One query for an image: a dense bottleneck is replaced by a weighted sum of slots."""

    def __init__(self, config: MemAEConfig) -> None:
        super().__init__(config.slots, config.code, config.threshold)
        sizes = config.size, config.channels, config.hidden, config.code
        self.encoder, self.decoder = DenseEncoder(*sizes), DenseDecoder(*sizes)

    def forward(self, signed: Tensor) -> tuple[Tensor, Tensor]:
        """(b, 1, h, w) -> the reconstruction (b, 1, h, w), and the weights of the slots
        (b, 1, n)."""
        found, weights = self.read(self.encoder(signed)[:, None])
        return self.decoder(found[:, 0]), weights


def memory_network(config: MemorySettings) -> MemoryAutoEncoder:
    return MemoryAutoEncoder(config.channels, slots=config.slots, threshold=config.threshold)


def shrink_to_some(similarity: Tensor, threshold: float) -> Tensor:
    """MemAE's sparse weights: the softmax where it is above the threshold, summing to one.

    The most similar slot always stays: a threshold above every weight would leave none.
    """
    # The best slot is kept as it is, all others are shrunk.
    soft = similarity.softmax(-1)
    best = soft.amax(-1, keepdim=True)
    return F.normalize(torch.where(soft < best, hard_shrink(soft, threshold), soft), p=1, dim=-1)


def memory_loss(network: nn.Module, signed: Tensor, entropy_weight: float) -> dict[str, Tensor]:
    """The squared error, and the entropy of the weights, which makes reads sparse."""
    reconstruction, weights = network(signed)
    return {
        "error": F.mse_loss(reconstruction, signed),
        "entropy": entropy_weight * mean_entropy(weights),
    }


def mean_entropy(weights: Tensor) -> Tensor:
    """The mean entropy of rows (..., n) that sum to one."""
    return -(weights * (weights + TINY).log()).sum(-1).mean()


class MemAE(ReconstructionMethod):
    """Score: mean squared error of the reconstruction."""

    Config: ClassVar[type[MethodConfig]] = MemAEConfig
    title = "MemAE"
    paper = "Gong et al., ICCV 2019, arXiv:1904.02639"

    def __init__(self, config: MemAEConfig) -> None:
        super().__init__()
        self.config: MemAEConfig = config
        one_query = config.query == "image"
        self.network = MemoryOfVectors(config) if one_query else memory_network(config)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        return memory_loss(self.network, to_signed(batch.images), self.config.entropy_weight)

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        reconstruction: Tensor = self.network(to_signed(images))[0]
        return reconstruction
