"""The auto-encoder, with the settings of MedIAnomaly (Cai et al., 2024, arXiv:2404.04518).

Its code is too small to hold more than normal images, so anomalies are not reconstructed.
"""

from typing import ClassVar, Literal

from torch import Tensor

from squid.methods.base import MethodConfig
from squid.methods.reconstruction import DenseConfig, ReconstructionMethod
from squid.nn.autoencoder import DenseDecoder, DenseEncoder, to_signed


class AutoEncoderConfig(DenseConfig):
    """Defaults are those of MedIAnomaly, whose images have 64 pixels a side."""

    name: Literal["auto_encoder"] = "auto_encoder"


class AutoEncoder(ReconstructionMethod):
    """Score: mean squared error of the reconstruction."""

    Config: ClassVar[type[MethodConfig]] = AutoEncoderConfig
    title = "Auto-Encoder"
    paper = "Cai et al., 2024, arXiv:2404.04518"

    maps: ClassVar[int] = 1
    """What the decoder predicts for each pixel."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.config = config
        network = config.size, config.channels, config.hidden, config.latent
        self.encoder = DenseEncoder(*network)
        self.decoder = DenseDecoder(*network, maps=self.maps)

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        reconstruction: Tensor = self.decoder(self.encoder(to_signed(images)))
        return reconstruction
