"""MemAE: memorising normality to detect anomaly (Gong et al., ICCV 2019)."""

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from squid.methods.base import Batch, MethodConfig, OptimizerConfig, Shared
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import MemoryAutoEncoder, mean_entropy, to_signed


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


class MemAE(ReconstructionMethod):
    """An auto-encoder whose decoder sees only what a memory of normal patterns holds."""

    Config: ClassVar[type[MethodConfig]] = MemAEConfig
    title = "MemAE"
    paper = "Gong et al., ICCV 2019, arXiv:1904.02639"

    def __init__(self, config: MemAEConfig) -> None:
        super().__init__()
        self.config: MemAEConfig = config
        self.network = memory_network(config)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        return memory_loss(self.network, to_signed(batch.images), self.config.entropy_weight)

    def redraw(self, images: Tensor) -> Tensor:
        drawing: Tensor = self.network(to_signed(images))[0]
        return drawing


def memory_network(config: MemorySettings) -> MemoryAutoEncoder:
    return MemoryAutoEncoder(config.channels, slots=config.slots, threshold=config.threshold)


def memory_loss(network: nn.Module, signed: Tensor, entropy_weight: float) -> dict[str, Tensor]:
    """The squared error, and the entropy of the weights, which makes reads sparse."""
    drawing, weights = network(signed)
    return {
        "error": F.mse_loss(drawing, signed),
        "entropy": entropy_weight * mean_entropy(weights),
    }
