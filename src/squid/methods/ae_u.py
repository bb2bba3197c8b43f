"""AE-U: abnormality detection in chest X-ray images using uncertainty prediction autoencoders (Mao
et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51).

The decoder predicts a mean and a variance for each pixel. An error counts in units of that
variance, so the borders of healthy organs, which no code predicts well, weigh little.
"""

from typing import ClassVar, Literal

from torch import Tensor

from squid.methods.base import Batch, MethodConfig, OptimizerConfig, Shared
from squid.methods.reconstruction import Count, ReconstructionConfig, ReconstructionMethod
from squid.nn.autoencoder import DenseDecoder, DenseEncoder, to_signed
from squid.nn.conv import at_least_float32
from squid.nn.uncertainty import LOG_VARIANCE, gaussian_terms, relative_error


class AeUConfig(ReconstructionConfig):
    """Defaults are those of MedIAnomaly (Cai et al., 2024, arXiv:2404.04518) but for the epochs, of
    which it has 250 at 64 pixels a side."""

    name: Literal["ae_u"] = "ae_u"
    channels: tuple[Count, ...] = (16, 32, 64, 64)
    hidden: Count = 2048
    """Units of the layer between the convolutions and the code."""
    latent: Count = 16
    """Length of the code."""
    epochs: Count = 200
    batch_size: int = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3)


class AeU(ReconstructionMethod):
    """Score: mean over pixels of the squared error divided by the predicted variance."""

    Config: ClassVar[type[MethodConfig]] = AeUConfig
    title = "AE-U"
    paper = "Mao et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51"

    def __init__(self, config: AeUConfig) -> None:
        super().__init__()
        self.config = config
        network = config.size, config.channels, config.hidden, config.latent
        self.encoder = DenseEncoder(*network)
        self.decoder = DenseDecoder(*network, maps=2)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        return gaussian_terms(to_signed(batch.images), *self._predict(batch.images))

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each pixel in [-1, 1], both (b, 1, h, w)."""
        # In float32: float16 cannot hold the exponential of the largest of these.
        maps = at_least_float32(self.decoder(self.encoder(to_signed(images))))  # (b, 2, h, w)
        mean, log_variance = maps.chunk(2, dim=1)
        return mean, log_variance.clamp(*LOG_VARIANCE)

    def heatmap(self, images: Tensor) -> Tensor:
        return relative_error(to_signed(images), *self._predict(images)).squeeze(1)

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        return self._predict(images)[0]
