"""SALAD-style: images and codes translated into each other, with self-supervised restoration (after
Zhao et al., IEEE TMI 2021, doi:10.1109/TMI.2021.3093883).

A house version of what is known of SALAD: translation between image and latent space, a
structural-similarity loss, a centre constraint, a self-supervised module. There is no public code
and its weights are unknown, so this is no reproduction of its numbers.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import PositiveInt
from torch import Tensor, nn

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
from squid.nn.conv import at_least_float32
from squid.nn.dcgan import LEAK, DcganDecoder, DcganEncoder
from squid.nn.noise import NoiseSpec
from squid.nn.pyramid import Side
from squid.nn.ranks import ALONE, Ranks
from squid.nn.ssim import ssim

BLOCKS = 16
"""Blocks a side, within which pixels are shuffled."""
BOX_SIDES = (0.125, 0.4)
"""Shortest and longest side of a filled box, as shares of the image's."""
TINY = 1e-12


class SaladConfig(MethodConfig):
    """Settings of the SALAD-style house version; the paper's are unknown."""

    name: Literal["salad"] = "salad"
    size: Side = 128
    width: PositiveInt = 64
    """Channels of the first level; they double from level to level."""
    code: PositiveInt = 128
    appearance_weight: float = 10.0
    """Weight of absolute differences and of structural dissimilarity between image and
    reconstruction."""
    cycle_weight: float = 1.0
    """Weight of the distance between a random code and the code of the image generated from it."""
    centre_weight: float = 0.1
    restoration_weight: float = 1.0
    centre_momentum: float = 0.1
    """Share of a batch in the running centre."""
    epochs: PositiveInt = 200
    batch_size: PositiveInt = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=2e-4, betas=(0.5, 0.999))
    """The optimiser of the translators and of the critics."""


# ------------------------------------------------- corruptions to restore from


def shuffle_blocks(images: Tensor, order: Tensor, chosen: Tensor, block: int) -> Tensor:
    """Shuffles the pixels within the chosen blocks.

    `order` (b, 1, h, w) is uniform and sorts them; `chosen` (b, n) is one for blocks to shuffle,
    row by row.
    """
    layout = "b 1 (h i) (w j) -> b (h w) (i j)"
    pixels = rearrange(images, layout, i=block, j=block)  # (b, n, i*j)
    # Sorting uniform numbers gives a random permutation of each block.
    places = rearrange(order, layout, i=block, j=block).argsort(-1)
    mixed = torch.where(chosen[..., None] > 0, pixels.gather(-1, places), pixels)
    back = "b (h w) (i j) -> b 1 (h i) (w j)"
    return rearrange(mixed, back, h=images.shape[2] // block, i=block)


def bend_intensities(images: Tensor, bends: Tensor) -> Tensor:
    """A rising Bezier curve from (0, 0) to (1, 1), given two uniform `bends` (b, 2)."""
    low, high = bends.amin(1)[:, None, None, None], bends.amax(1)[:, None, None, None]
    # A cubic curve with end points 0 and 1; sorted control points let it rise.
    rest = 1 - images
    return 3 * rest**2 * images * low + 3 * rest * images**2 * high + images**3


def fill_box(images: Tensor, box: Tensor, sides: tuple[float, float] = BOX_SIDES) -> Tensor:
    """One gray box per image; `box` (b, 5) is uniform: two places, two sides, the gray."""
    height, width = images.shape[-2:]
    shortest, longest = sides
    top, left, tall, wide, gray = box.unbind(1)
    rows = _within(height, top, shortest + (longest - shortest) * tall)  # (b, h)
    columns = _within(width, left, shortest + (longest - shortest) * wide)  # (b, w)
    inside = (rows[:, :, None] & columns[:, None, :])[:, None]  # (b, 1, h, w)
    return torch.where(inside, gray.to(images.dtype)[:, None, None, None], images)


def _within(length: int, place: Tensor, extent: Tensor) -> Tensor:
    """(b, length): pixels whose centre lies in a stretch that stays within the image."""
    centres = (torch.arange(length, device=place.device) + 0.5) / length
    # The start leaves room for the whole stretch.
    start = place * (1 - extent)
    return (centres >= start[:, None]) & (centres < (start + extent)[:, None])


# ------------------------------------------------------------------ the method


def _code_critic(code: int, hidden: int = 256) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(code, hidden),
        nn.LeakyReLU(LEAK),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(LEAK),
        nn.Linear(hidden, 1),
    )


class Salad(Method):
    """Encoder and generator translate between images and codes; a critic of images and a critic of
    codes guide them. Score: how the reconstruction differs, plus the code's distance to the centre.
    """

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
        """`code` is a random code to generate an image from; the others corrupt the images to
        restore, `kind` chooses how."""
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
        return {"code": self._encode(batch.images), "fake": self._generate(batch.noise["code"])}

    def _translators_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config, images, code, fake = self.config, batch.images, shared["code"], shared["fake"]
        # The centre follows the codes as a running mean and gets no gradient.
        self.centre.lerp_(self.ranks.mean(code.detach().mean(0)), config.centre_momentum)
        reconstruction = self._generate(code)
        # Image -> code -> image, code -> image -> code, and corrupted image -> whole image.
        appearance = F.l1_loss(reconstruction, images) + 1 - ssim(reconstruction, images).mean()
        cycle = F.mse_loss(self._encode(fake), batch.noise["code"])
        restored = self._generate(self._encode(self._corrupt(batch)))
        return {
            "images": least_squares(self.image_critic(to_signed(fake)), 1.0),
            "codes": least_squares(self.code_critic(code), 1.0),
            "appearance": config.appearance_weight * appearance,
            "cycle": config.cycle_weight * cycle,
            "centre": config.centre_weight * (code - self.centre).square().mean(),
            "restoration": config.restoration_weight * F.l1_loss(restored, images),
        }

    def _critics_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        real, fake = to_signed(batch.images), to_signed(shared["fake"].detach())
        return {
            "images": _critic_loss(self.image_critic, real, fake),
            "codes": _critic_loss(self.code_critic, batch.noise["code"], shared["code"].detach()),
        }

    def _corrupt(self, batch: Batch) -> Tensor:
        """Each image in one of three ways."""
        images, noise = batch.images, batch.noise
        block = self.config.size // BLOCKS
        # All three for every image: a choice by `where` needs no synchronisation.
        shuffled = shuffle_blocks(images, noise["order"], noise["chosen"], block)
        bent = bend_intensities(images, noise["bends"])
        boxed = fill_box(images, noise["box"])
        kind = noise["kind"]
        return torch.where(kind < 1 / 3, shuffled, torch.where(kind < 2 / 3, bent, boxed))

    def finalize(self, batches: Iterable[Batch]) -> None:
        """The centre of all codes, and a weight that lets both parts of the score vary equally."""
        parts = [self._parts(batch.images) for batch in batches]
        codes = torch.cat([code for code, _ in parts])  # (n, d)
        appearance = torch.cat([difference for _, difference in parts])  # (n,)
        self.centre.copy_(codes.mean(0))
        spread = self._distance(codes).std(correction=0).clamp_min(TINY)
        self.distance_weight.copy_(appearance.std(correction=0) / spread)

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        codes, appearance = self._parts(images)
        return appearance + self.distance_weight * self._distance(codes)

    def reconstruct(self, images: Tensor) -> Tensor:
        return self._generate(self._encode(images))

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - self.reconstruct(images)).abs().squeeze(1)

    def _parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (b, d), and how each image differs from its reconstruction (b,)."""
        codes = self._encode(images)
        reconstruction = self._generate(codes)
        difference = (images - reconstruction).abs().mean((1, 2, 3))
        return codes, (1 - ssim(images, reconstruction) + difference) / 2

    def _distance(self, codes: Tensor) -> Tensor:
        return (codes - self.centre).square().mean(1)

    def _encode(self, images: Tensor) -> Tensor:
        return at_least_float32(self.encoder(to_signed(images)))

    def _generate(self, codes: Tensor) -> Tensor:
        return to_unit(at_least_float32(self.generator(codes)))


def _critic_loss(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    return 0.5 * (least_squares(critic(real), 1.0) + least_squares(critic(fake), 0.0))


def least_squares(outputs: Tensor, target: float) -> Tensor:
    """The least-squares adversarial loss (Mao et al., ICCV 2017)."""
    return (at_least_float32(outputs) - target).square().mean()
