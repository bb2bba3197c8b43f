"""SALAD-style: images and codes translated into each other, with self-supervised restoration.

A house version of what is known of SALAD (Zhao et al., TMI 2021: translation between image and
latent space, a structural-similarity loss, a centre constraint, a self-supervised module). There is
no public code and its weights are unknown: this is no reproduction of its numbers.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    NoiseSpec,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.autoencoder import to_signed, to_unit
from squid.nn.conv import at_least_float32
from squid.nn.corruption import bend_intensities, fill_box, shuffle_blocks
from squid.nn.dcgan import LEAK, DcganDecoder, DcganEncoder
from squid.nn.pyramid import Side
from squid.nn.ranks import ALONE, Ranks
from squid.nn.ssim import ssim

BLOCKS = 16
"""Blocks a side, within which pixels are shuffled."""
TINY = 1e-12


class SaladConfig(MethodConfig):
    """Settings of the SALAD-style house version; the paper's are unknown."""

    name: Literal["salad"] = "salad"
    size: Side = 128
    width: PositiveInt = 64
    """Channels of the first level; they double from level to level."""
    code: PositiveInt = 128
    appearance_weight: float = 10.0
    """Of absolute differences and of structural dissimilarity between image and reconstruction."""
    cycle_weight: float = 1.0
    """Of the distance between a code and the code of the image drawn from it."""
    centre_weight: float = 0.1
    restoration_weight: float = 1.0
    centre_momentum: float = 0.1
    """Share of a batch in the running centre."""
    epochs: PositiveInt = 200
    batch_size: PositiveInt = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-4, betas=(0.5, 0.999))
    """Of the translators and of the critics."""


class Salad(Method):
    """SALAD-style: encoder and generator translate; a critic on either side judges."""

    Config: ClassVar[type[MethodConfig]] = SaladConfig
    title = "SALAD-style"
    paper = "after Zhao et al., IEEE TMI 2021, doi:10.1109/TMI.2021.3093883"
    training_only = ("image_critic.", "code_critic.")
    ranks: Ranks = ALONE

    centre: Tensor
    distance_weight: Tensor

    def __init__(self, config: SaladConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = DcganEncoder(config.size, config.width, config.code)
        self.generator = DcganDecoder(config.size, config.width, config.code)
        self.image_critic = DcganEncoder(config.size, config.width, code=1)
        self.code_critic = _code_critic(config.code)
        self.register_buffer("centre", torch.zeros(config.code))
        self.register_buffer("distance_weight", torch.ones(()))

    # ---------------------------------------------------------------- training

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """`code` is drawn as an image; the others spoil the images to restore, `kind` says how."""
        size = self.config.size
        return {
            "code": NoiseSpec((b, self.config.code), "normal"),
            "kind": NoiseSpec((b, 1, 1, 1), "uniform"),
            "order": NoiseSpec((b, 1, size, size), "uniform"),
            "chosen": NoiseSpec((b, BLOCKS**2), "bernoulli"),
            "bends": NoiseSpec((b, 2), "uniform"),
            "box": NoiseSpec((b, 5), "uniform"),
        }

    def stages(self) -> tuple[Stage, ...]:
        translators = Objective(
            name="translators",
            parameters=[*self.encoder.parameters(), *self.generator.parameters()],
            loss=self._translators_loss,
            optimizer=self.config.optimizer,
        )
        critics = Objective(
            name="critics",
            parameters=[*self.image_critic.parameters(), *self.code_critic.parameters()],
            loss=self._critics_loss,
            optimizer=self.config.optimizer,
        )
        return (
            Stage(
                name="train",
                objectives=(translators, critics),
                batch_size=self.config.batch_size,
                epochs=self.config.epochs,
                shared=self._shared,
            ),
        )

    def _shared(self, batch: Batch, active: frozenset[str]) -> Shared:
        return {"code": self._encode(batch.images), "drawn": self._draw(batch.noise["code"])}

    def _translators_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config, images, code, drawn = self.config, batch.images, shared["code"], shared["drawn"]
        self._move_centre(code.detach())
        reconstruction = self._draw(code)
        appearance = F.l1_loss(reconstruction, images) + 1 - ssim(reconstruction, images).mean()
        cycle = F.mse_loss(self._encode(drawn), batch.noise["code"])
        restored = self._draw(self._encode(self._spoil(batch)))
        return {
            "images": _should_be(self.image_critic(to_signed(drawn)), 1.0),
            "codes": _should_be(self.code_critic(code), 1.0),
            "appearance": config.appearance_weight * appearance,
            "cycle": config.cycle_weight * cycle,
            "centre": config.centre_weight * (code - self.centre).square().mean(),
            "restoration": config.restoration_weight * F.l1_loss(restored, images),
        }

    def _critics_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        real, drawn = to_signed(batch.images), to_signed(shared["drawn"].detach())
        return {
            "images": _tell_apart(self.image_critic, real, drawn),
            "codes": _tell_apart(self.code_critic, batch.noise["code"], shared["code"].detach()),
        }

    def _spoil(self, batch: Batch) -> Tensor:
        """Each image in one of three ways."""
        images, noise = batch.images, batch.noise
        block = self.config.size // BLOCKS
        shuffled = shuffle_blocks(images, noise["order"], noise["chosen"], block)
        bent = bend_intensities(images, noise["bends"])
        boxed = fill_box(images, noise["box"])
        kind = noise["kind"]
        return torch.where(kind < 1 / 3, shuffled, torch.where(kind < 2 / 3, bent, boxed))

    def _move_centre(self, codes: Tensor) -> None:
        self.centre.lerp_(self.ranks.mean(codes.mean(0)), self.config.centre_momentum)

    def finalize(self, batches: Iterable[Batch]) -> None:
        """The centre of all codes, and a weight that lets both parts of the score vary equally."""
        seen = [self._look(batch.images) for batch in batches]
        codes = torch.cat([code for code, _ in seen])
        appearance = torch.cat([error for _, error in seen])
        self.centre.copy_(codes.mean(0))
        spread = self._distance(codes).std(correction=0).clamp_min(TINY)
        self.distance_weight.copy_(appearance.std(correction=0) / spread)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        codes, appearance = self._look(images)
        return appearance + self.distance_weight * self._distance(codes)

    def reconstruct(self, images: Tensor) -> Tensor:
        return self._draw(self._encode(images))

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - self.reconstruct(images)).abs().squeeze(1)

    def _look(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (b, d), and how each image differs from its reconstruction (b,)."""
        codes = self._encode(images)
        reconstruction = self._draw(codes)
        difference = (images - reconstruction).abs().mean((1, 2, 3))
        return codes, (1 - ssim(images, reconstruction) + difference) / 2

    def _distance(self, codes: Tensor) -> Tensor:
        return (codes - self.centre).square().mean(1)

    def _encode(self, images: Tensor) -> Tensor:
        return at_least_float32(self.encoder(to_signed(images)))

    def _draw(self, codes: Tensor) -> Tensor:
        return to_unit(at_least_float32(self.generator(codes)))


def _code_critic(code: int, hidden: int = 256) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(code, hidden),
        nn.LeakyReLU(LEAK),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(LEAK),
        nn.Linear(hidden, 1),
    )


def _tell_apart(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    return 0.5 * (_should_be(critic(real), 1.0) + _should_be(critic(fake), 0.0))


def _should_be(verdicts: Tensor, wanted: float) -> Tensor:
    """Least-squares adversarial loss."""
    return (at_least_float32(verdicts) - wanted).square().mean()
