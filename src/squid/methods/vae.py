"""VAE: auto-encoding variational Bayes (Kingma and Welling, ICLR 2014, arXiv:1312.6114).

The code of an image is a Gaussian, kept near the standard normal.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from squid.methods.base import Batch, MethodConfig, Shared
from squid.methods.reconstruction import DenseConfig, ReconstructionMethod
from squid.nn.autoencoder import DenseDecoder, DenseEncoder, to_signed
from squid.nn.conv import at_least_float32
from squid.nn.noise import NoiseSpec


class VaeConfig(DenseConfig):
    """Defaults are those of MedIAnomaly (Cai et al. 2024), whose images have 64 pixels a side."""

    name: Literal["vae"] = "vae"
    beta: float = 0.005
    """Weight of the divergence; both terms are means, over pixels and over the code."""


class Vae(ReconstructionMethod):
    """The auto-encoder with a random code in training; scoring decodes the code's mean. Score: mean
    squared error of the reconstruction."""

    Config: ClassVar[type[MethodConfig]] = VaeConfig
    title = "VAE"
    paper = "Kingma and Welling, ICLR 2014, arXiv:1312.6114"

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config: VaeConfig = config
        network = config.size, config.channels, config.hidden
        self.encoder = DenseEncoder(*network, 2 * config.latent)
        self.decoder = DenseDecoder(*network, config.latent)

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        return {"code": NoiseSpec((b, self.config.latent), "normal")}

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        signed = to_signed(batch.images)
        mean, log_variance = self._encode(signed)
        # The reparameterisation: a random code with a gradient to mean and variance.
        code = mean + batch.noise["code"] * (0.5 * log_variance).exp()
        divergence = divergence_from_standard(mean, log_variance)
        return {
            "error": F.mse_loss(self.decoder(code), signed),
            "divergence": self.config.beta * divergence,
        }

    def _encode(self, signed: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the logarithm of the variance of the code, both (b, latent)."""
        mean, log_variance = at_least_float32(self.encoder(signed)).chunk(2, dim=1)
        return mean, log_variance

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        reconstruction: Tensor = self.decoder(self._encode(to_signed(images))[0])
        return reconstruction


def divergence_from_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Kullback-Leibler divergence from the standard normal: the mean over images and code."""
    return -0.5 * (1.0 + log_variance - mean.square() - log_variance.exp()).mean()
