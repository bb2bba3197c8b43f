"""The auto-encoder, with the settings of MedIAnomaly (Cai et al., 2024, arXiv:2404.04518).

Its code is too small to hold more than normal images, so anomalies are not reconstructed.
"""

from typing import ClassVar, Literal

from torch import Tensor

from squid.methods.base import MethodConfig, OptimizerConfig
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import DenseDecoder, DenseEncoder, to_signed


class AutoEncoderConfig(ReconstructionConfig):
    """Defaults are those of MedIAnomaly, whose images have 64 pixels a side."""

    name: Literal["auto_encoder"] = "auto_encoder"
    channels: tuple[Count, ...] = (16, 32, 64, 64)
    hidden: Count = 1024
    """Units of the layer between the convolutions and the code."""
    latent: Count = 16
    """Length of the code. A long one lets the decoder reconstruct anomalies."""
    epochs: Count = 250
    batch_size: int = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3)


class AutoEncoder(ReconstructionMethod):
    """Score: mean squared error of the reconstruction."""

    Config: ClassVar[type[MethodConfig]] = AutoEncoderConfig
    title = "Auto-Encoder"
    paper = "Cai et al., 2024, arXiv:2404.04518"

    def __init__(self, config: AutoEncoderConfig) -> None:
        super().__init__()
        self.config = config
        network = config.size, config.channels, config.hidden, config.latent
        self.encoder = DenseEncoder(*network)
        self.decoder = DenseDecoder(*network)

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        reconstruction: Tensor = self.decoder(self.encoder(to_signed(images)))
        return reconstruction
