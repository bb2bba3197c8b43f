"""AE-U: abnormality detection in chest X-ray images using uncertainty prediction autoencoders (Mao
et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51).

The decoder predicts a mean and a variance for each pixel. An error counts in units of that
variance, so the borders of healthy organs, which no code predicts well, weigh little.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from squid.methods.auto_encoder import AutoEncoder
from squid.methods.base import Batch, MethodConfig, Shared
from squid.methods.reconstruction import Count, DenseConfig
from squid.nn.autoencoder import to_signed
from squid.nn.blur import gaussian_blur
from squid.nn.conv import at_least_float32
from squid.nn.gaussian import Moments
from squid.nn.lungs import Lungs, Region
from squid.nn.uncertainty import (
    LOG_VARIANCE,
    gaussian_terms,
    relative_error,
    relative_residual,
)

LEAST_SPREAD = 0.25
"""Share of the mean spread that is added to that of each pixel, so that pixels which hardly vary do
not count without limit."""
DARKER = 0.5
"""Weight of pixels in the heatmap that are darker than expected: a reconstruction of an opacity is
too bright beside it as well."""
LEAST_SCORE = 1e-6
"""Mean square below which no logarithm is taken."""


class AeUConfig(DenseConfig):
    """Defaults are those of MedIAnomaly (Cai et al., 2024, arXiv:2404.04518) but for the epochs, of
    which it has 250 at 64 pixels a side."""

    name: Literal["ae_u"] = "ae_u"
    hidden: Count = 2048
    """Units of the layer between the convolutions and the code."""
    epochs: Count = 200
    smooth: Annotated[float, Field(ge=0.0, le=0.25)] = 0.0
    """Standard deviation, as a share of the side, of a Gaussian that smooths residuals before they
    are squared: the noise of single pixels cancels, a lesion stays. Residuals then count in units
    of their spread at each pixel over the training images. 0 as published."""
    brighter: bool = False
    """Whether only pixels count that are brighter than expected, as opacities are. It needs
    `smooth`."""
    region: Region = "image"
    """What counts: the whole image, or the lungs of frontal chest X-rays, which the mean of the
    training images shows."""

    @model_validator(mode="after")
    def _check_brighter(self) -> Self:
        if self.brighter and not self.smooth:
            raise ValueError("brighter needs smoothed residuals; set smooth, such as 0.04.")
        return self


class AeU(AutoEncoder):
    """Score: mean over pixels of the squared error divided by the predicted variance; with `smooth`
    the logarithm of the mean square of the smoothed residuals in units of their spread. As squares,
    a few healthy images would decide the scale on which a fusion adds the scores."""

    Config: ClassVar[type[MethodConfig]] = AeUConfig
    title = "AE-U"
    paper = "Mao et al., MICCAI 2020, doi:10.1007/978-3-030-59725-2_51"

    maps = 2
    config: AeUConfig
    residual_mean: Tensor
    residual_spread: Tensor

    def __init__(self, config: AeUConfig) -> None:
        super().__init__(config)
        self.lungs = Lungs(config.size) if config.region == "lungs" else None
        if config.smooth:
            side = (config.size, config.size)
            self.register_buffer("residual_mean", torch.zeros(side))
            self.register_buffer("residual_spread", torch.ones(side))

    def finalize(self, batches: Iterable[Batch]) -> None:
        """Finds the lungs and measures the smoothed residuals of the training images."""
        if self.lungs is not None:
            self.lungs.fit(batch.images for batch in batches)
        if not self.config.smooth:
            return
        moments = Moments()
        for batch in batches:
            moments.add(self._smoothed(batch.images).flatten(1)[..., None])  # (b, h w, 1)
        # Rounding may leave less than nothing of a variance that is none.
        spread = moments.covariance().clamp_min(0.0).sqrt().view_as(self.residual_spread)
        spread = spread + LEAST_SPREAD * spread.mean()
        self.residual_mean.copy_(moments.mean().view_as(self.residual_mean))
        # Images that are all equal have no spread to divide by.
        self.residual_spread.copy_(torch.where(spread > 0, spread, 1.0))

    def _smoothed(self, images: Tensor) -> Tensor:
        """(b, h, w): residuals in units of the predicted deviation, smoothed."""
        residuals = relative_residual(to_signed(images), *self._predict(images))
        return gaussian_blur(residuals.squeeze(1), self.config.smooth * self.config.size)

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        return gaussian_terms(to_signed(batch.images), *self._predict(batch.images))

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each pixel in [-1, 1], both (b, 1, h, w)."""
        # In float32: float16 cannot hold the exponential of the largest of these.
        maps = at_least_float32(self.decoder(self.encoder(to_signed(images))))  # (b, 2, h, w)
        mean, log_variance = maps.chunk(2, dim=1)
        return mean, log_variance.clamp(*LOG_VARIANCE)

    def score(self, images: Tensor) -> Tensor:
        if not self.config.smooth:
            return self._mean(self._relative_error(images))
        mean_square = self._mean(self._deviation(images).square())
        return mean_square.clamp_min(LEAST_SCORE).log()

    def heatmap(self, images: Tensor) -> Tensor:
        if self.config.smooth:
            deviation = self._deviation(images)
            maps = torch.where(deviation > 0, deviation, -DARKER * deviation)
        else:
            maps = self._relative_error(images)
        return maps if self.lungs is None else self.lungs.shade(maps)

    def _relative_error(self, images: Tensor) -> Tensor:
        return relative_error(to_signed(images), *self._predict(images)).squeeze(1)  # (b, h, w)

    def _deviation(self, images: Tensor) -> Tensor:
        """(b, h, w): smoothed residuals in units of their spread at each pixel."""
        deviation = (self._smoothed(images) - self.residual_mean) / self.residual_spread
        return deviation.relu() if self.config.brighter else deviation

    def _mean(self, maps: Tensor) -> Tensor:
        return maps.mean((1, 2)) if self.lungs is None else self.lungs.mean(maps)

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        return self._predict(images)[0]
