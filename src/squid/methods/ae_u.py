"""AE-U: abnormality detection in chest X-ray images using uncertainty prediction autoencoders (Mao
et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51).

The decoder predicts a mean and a variance for each pixel. An error counts in units of that
variance, so the borders of healthy organs, which no code predicts well, weigh little.
"""

from typing import ClassVar, Literal

from torch import Tensor

from squid.methods.auto_encoder import AutoEncoder
from squid.methods.base import Batch, MethodConfig, Shared
from squid.methods.reconstruction import Count, DenseConfig
from squid.nn.autoencoder import to_signed
from squid.nn.conv import at_least_float32
from squid.nn.uncertainty import LOG_VARIANCE, gaussian_terms, relative_error


class AeUConfig(DenseConfig):
    """Defaults are those of MedIAnomaly (Cai et al., 2024, arXiv:2404.04518) but for the epochs, of
    which it has 250 at 64 pixels a side."""

    name: Literal["ae_u"] = "ae_u"
    hidden: Count = 2048
    """Units of the layer between the convolutions and the code."""
    epochs: Count = 200


class AeU(AutoEncoder):
    """Score: mean over pixels of the squared error divided by the predicted variance."""

    Config: ClassVar[type[MethodConfig]] = AeUConfig
    title = "AE-U"
    paper = "Mao et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51"

    maps = 2

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
