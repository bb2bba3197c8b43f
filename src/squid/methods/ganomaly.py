"""Ganomaly: semi-supervised anomaly detection via adversarial training (Akcay et al., ACCV 2018,
arXiv:1805.06725).

An image is anomalous whose reconstruction encodes to another code than the image itself.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.autoencoder import to_signed, to_unit
from squid.nn.conv import Statistics, at_least_float32
from squid.nn.dcgan import DcganDecoder, DcganEncoder, initialise
from squid.nn.discriminator import real_or_fake
from squid.nn.pyramid import Side
from squid.nn.ranks import ALONE, Ranks


class GanomalyConfig(MethodConfig):
    """The authors' settings; they train 15 epochs on much larger sets, at 32 pixels."""

    name: Literal["ganomaly"] = "ganomaly"
    size: Side = 128
    width: PositiveInt = 64
    """Channels of the first level; they double from level to level."""
    code: PositiveInt = 100
    """Values that an image is encoded to."""
    adversarial_weight: float = 1.0
    reconstruction_weight: float = 50.0
    code_weight: float = 1.0
    collapsed: float = 1e-5
    """The discriminator is initialised again when an epoch ends with a smaller loss of it; the
    authors look after each step."""
    epochs: PositiveInt = 200
    batch_size: PositiveInt = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-4, betas=(0.5, 0.999))
    """The optimiser of the generator and of the discriminator."""
    score_statistics: Literal["running", "image", "batch"] = "running"
    """How scoring normalises: by the tracked statistics, by each image alone, or by random batches
    of `batch_size` of the images that are scored together. The last is the authors' choice and
    makes a score depend on the other images: for comparisons only. Reconstructions and heatmaps
    then have the tracked statistics."""


class Ganomaly(Method):
    """Encoder, decoder and a second encoder, trained with a discriminator whose features of image
    and reconstruction must match. Score: distance of the two codes."""

    Config: ClassVar[type[MethodConfig]] = GanomalyConfig
    title = "Ganomaly"
    paper = "Akcay et al., ACCV 2018, arXiv:1805.06725"
    training_only = ("discriminator",)
    ranks: Ranks = ALONE

    discriminator_loss: Tensor

    def __init__(self, config: GanomalyConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = DcganEncoder(config.size, config.width, config.code)
        self.decoder = DcganDecoder(config.size, config.width, config.code)
        self.second_encoder = DcganEncoder(config.size, config.width, config.code)
        self.discriminator = DcganEncoder(config.size, config.width, code=1)
        self.register_buffer("discriminator_loss", torch.tensor(float("inf")))
        if config.score_statistics == "batch":
            self.scored_together = config.batch_size

    # ---------------------------------------------------------------- training

    def stages(self) -> tuple[Stage, ...]:
        # The generator first, as the authors do; both objectives use the same pass.
        networks = (self.encoder, self.decoder, self.second_encoder)
        generator = Objective(
            name="generator",
            parameters=[p for network in networks for p in network.parameters()],
            loss=self._generator_loss,
            optimizer=self.config.optimizer,
        )
        discriminator = Objective(
            name="discriminator",
            parameters=list(self.discriminator.parameters()),
            loss=self._discriminator_loss,
            optimizer=self.config.optimizer,
        )
        return (
            Stage(
                name="train",
                objectives=(generator, discriminator),
                batch_size=self.config.batch_size,
                epochs=self.config.epochs,
                shared=self._shared,
                prepare=self._reinitialise_collapsed,
                every_epochs=1,
            ),
        )

    def _shared(self, batch: Batch, active: frozenset[str]) -> Shared:
        real = to_signed(batch.images)
        fake, code, second_code = self._pass(real)
        return {"real": real, "fake": fake, "code": code, "second_code": second_code}

    def _generator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config, real, fake = self.config, shared["real"], shared["fake"]
        # Feature matching instead of fooling: the target has no gradient.
        target = self.discriminator.features(real).detach()
        adversarial = F.mse_loss(self.discriminator.features(fake), target)
        code = F.mse_loss(shared["second_code"], shared["code"])
        return {
            "adversarial": config.adversarial_weight * adversarial,
            "reconstruction": config.reconstruction_weight * F.l1_loss(fake, real),
            "code": config.code_weight * code,
        }

    def _discriminator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        real_logits = self.discriminator(shared["real"])
        fake_logits = self.discriminator(shared["fake"].detach())
        loss = 0.5 * real_or_fake(real_logits, fake_logits)
        # Kept on the device, so that no step waits for its value; the epoch's end looks at it.
        self.discriminator_loss.copy_(loss.detach())
        return {"discriminator": loss}

    def _reinitialise_collapsed(self, batches: Iterable[Batch]) -> None:
        """To the same new weights each time, so that all ranks agree."""
        if self.ranks.mean(self.discriminator_loss) < self.config.collapsed:
            initialise(self.discriminator, torch.Generator().manual_seed(0))

    def _pass(
        self, images: Tensor, statistics: Statistics | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction, the image's code and the reconstruction's; pixels in [-1, 1]."""
        code = self.encoder(images, statistics)
        reconstruction = self.decoder(code, statistics)
        return reconstruction, code, self.second_encoder(reconstruction, statistics)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        _, code, second_code = self._pass(to_signed(images), self.config.score_statistics)
        return at_least_float32(second_code - code).square().mean(1)

    def reconstruct(self, images: Tensor) -> Tensor:
        # An image's reconstruction never depends on the other images.
        statistics: Statistics = "image" if self.config.score_statistics == "image" else "running"
        # Without the second encoder, which only the score needs.
        code = self.encoder(to_signed(images), statistics)
        return to_unit(self.decoder(code, statistics))

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - self.reconstruct(images)).abs().squeeze(1)
