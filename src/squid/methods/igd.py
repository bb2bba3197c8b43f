"""IGD: deep one-class classification via interpolated Gaussian descriptor (Chen et al., AAAI 2022,
arXiv:2101.10043), its global branch.

Codes of normal images are pulled towards the centre of a Gaussian. A critic predicts how two codes
were interpolated from the image decoded between them, and the decoder learns to leave no trace.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
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
from squid.nn.backbone import BackboneConfig, build_backbone, pooled
from squid.nn.conv import at_least_float32
from squid.nn.noise import NoiseSpec
from squid.nn.pyramid import Side, count_halvings, smallest_side
from squid.nn.residual import (
    CodeToMaps,
    ResidualDoublings,
    ResidualHalvings,
    double,
    he_conv,
)
from squid.nn.ssim import ms_ssim


class IgdConfig(MethodConfig):
    """The authors' settings; they have 256 pixels, a ResNet18, and flip training images."""

    name: Literal["igd"] = "igd"
    size: Side = 128
    backbone: BackboneConfig = BackboneConfig()
    train_backbone: bool = False
    """Whether the backbone learns too: from scratch, where there are no weights for it."""
    width: PositiveInt = 64
    """Channels at the finest level; they double up to eight times as many."""
    code: PositiveInt = 128
    structure_share: float = 0.85
    """Share of structural dissimilarity in the reconstruction error; the rest is absolute
    difference."""
    window: PositiveInt = 11
    """Side of the window of structural similarity."""
    critic_weight: float = 0.1
    blend: float = 0.2
    """Share of the image in a blend with its reconstruction, for which the critic learns to predict
    zero."""
    least_centre: PositiveFloat = 0.1
    """Smallest absolute value of the centre's entries: zero would be reached trivially."""
    centre_epochs: PositiveInt = 10
    """Epochs between estimates of centre and width."""
    score_share: float = 0.1
    """Share of the reconstruction error in the score; the rest is how far the code is from the
    centre."""
    epochs: PositiveInt = 256
    batch_size: PositiveInt = 16
    generator: OptimizerConfig = OptimizerConfig(
        lr=1e-4, betas=(0.0, 0.9), weight_decay=1e-6, schedule="poly"
    )
    critic: OptimizerConfig = OptimizerConfig(lr=1e-4, betas=(0.0, 0.9), schedule="poly")


class CodeDecoder(nn.Module):
    """A code (b, d) -> an image (b, 1, h, w), about [0, 1] but unbounded."""

    def __init__(self, config: IgdConfig) -> None:
        super().__init__()
        # Two of the doublings are outside the residual levels: one before them and one after.
        levels = count_halvings(config.size) - 2
        self.doublings = ResidualDoublings(config.width, levels)
        channels = self.doublings.inputs
        self.enter = CodeToMaps(config.code, channels, smallest_side(config.size))
        self.first = he_conv(channels, channels)
        self.leave = nn.Conv2d(config.width, 1, 5, padding=2)

    def forward(self, code: Tensor) -> Tensor:
        x = self.first(double(self.enter(code)))
        return at_least_float32(self.leave(double(self.doublings(x))))


class Critic(nn.Module):
    """Images (b, 1, h, w) -> (b,), the predicted coefficient of an interpolation of two codes."""

    def __init__(self, config: IgdConfig) -> None:
        super().__init__()
        # Two of the halvings are outside the residual levels: the first and the last convolution.
        levels = count_halvings(config.size) - 2
        self.enter = nn.Conv2d(1, config.width, 5, stride=2, padding=2)
        self.halvings = ResidualHalvings(config.width, levels, "layer")
        channels = self.halvings.outputs
        self.leave = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.head = nn.Linear(channels * smallest_side(config.size) ** 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.leave(self.halvings(self.enter(images)))
        coefficient: Tensor = self.head(x.flatten(1))
        return at_least_float32(coefficient).squeeze(1)


class Igd(Method):
    """A frozen backbone, a linear code, a decoder; a critic of images decoded between two codes.
    Score: reconstruction error, and one minus the Gaussian at the code."""

    Config: ClassVar[type[MethodConfig]] = IgdConfig
    title = "IGD"
    paper = "Chen et al., AAAI 2022, arXiv:2101.10043"
    training_only = ("critic.",)

    centre: Tensor
    variance: Tensor

    def __init__(self, config: IgdConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone)
        self.backbone.requires_grad_(config.train_backbone)
        self.linear = nn.Linear(self.backbone.channels[-1], config.code)
        self.decoder = CodeDecoder(config)
        self.critic = Critic(config)
        self.register_buffer("centre", torch.zeros(config.code))
        self.register_buffer("variance", torch.ones(()))

    def begin(self, images: int) -> None:
        self.backbone.read_weights()

    # ---------------------------------------------------------------- training

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """Twice the coefficient of an interpolation, which is at most a half."""
        return {"between": NoiseSpec((b, 1), "uniform")}

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        learned = (self.linear, self.decoder, *([self.backbone] if config.train_backbone else []))
        generator = Objective(
            name="generator",
            parameters=[p for network in learned for p in network.parameters()],
            loss=self._generator_loss,
            optimizer=config.generator,
        )
        critic = Objective(
            name="critic",
            parameters=list(self.critic.parameters()),
            loss=self._critic_loss,
            optimizer=config.critic,
        )
        return (
            Stage(
                name="train",
                objectives=(generator, critic),
                batch_size=config.batch_size,
                epochs=config.epochs,
                shared=self._shared,
                prepare=self._estimate_gaussian,
                every_epochs=config.centre_epochs,
            ),
        )

    def _estimate_gaussian(self, batches: Iterable[Batch]) -> None:
        """The centre of all codes; the width is the mean over batches, each at least one."""
        codes = [self._encode(batch.images) for batch in batches]
        centre = torch.cat(codes).mean(0)
        # Entries near zero are pushed away from it, keeping their sign.
        pushed = torch.where(centre < 0, -1.0, 1.0) * self.config.least_centre
        self.centre.copy_(torch.where(centre.abs() < self.config.least_centre, pushed, centre))
        # The width is measured from the new centre.
        widths = [self._distance(batch).mean().clamp_min(1.0) for batch in codes]
        self.variance.copy_(torch.stack(widths).mean())

    def _shared(self, batch: Batch, active: frozenset[str]) -> Shared:
        # Each code is mixed with that of another image, at most half-way.
        code = self._encode(batch.images)
        between = 0.5 * batch.noise["between"]  # (b, 1)
        mixed = between * code + (1 - between) * code.flip(0)
        return {
            "code": code,
            "between": between,
            "reconstruction": self.decoder(code),
            "interpolation": self.decoder(mixed),
        }

    def _generator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        predicted = self.critic(shared["interpolation"])
        return {
            "reconstruction": self._error(batch.images, shared["reconstruction"]).mean(),
            "gaussian": self._gaussian_score(shared["code"]).mean(),
            "critic": self.config.critic_weight * predicted.square().mean(),
        }

    def _critic_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        predicted = self.critic(shared["interpolation"].detach())
        reconstruction = shared["reconstruction"].detach()
        # A blend of image and reconstruction is no interpolation of codes: its coefficient is zero.
        real = self.critic(torch.lerp(reconstruction, batch.images, self.config.blend))
        interpolation = (predicted - shared["between"].squeeze(1)).square().mean()
        return {"interpolation": interpolation, "real": real.square().mean()}

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        """In float64: far from the centre, the Gaussian score differs from one by very little."""
        code = self._encode(images)
        error = self._error(images, self.decoder(code)).double()
        share = self.config.score_share
        return share * error + (1 - share) * self._gaussian_score(code.double())

    def reconstruct(self, images: Tensor) -> Tensor:
        reconstruction: Tensor = self.decoder(self._encode(images))
        return reconstruction.clamp(0, 1)

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - self.reconstruct(images)).abs().squeeze(1)

    def _encode(self, images: Tensor) -> Tensor:
        # A frozen backbone needs no autograd graph.
        learns = self.config.train_backbone and torch.is_grad_enabled()
        with torch.set_grad_enabled(learns):
            features = pooled(self.backbone(images)[-1])
        return at_least_float32(self.linear(features))

    def _error(self, images: Tensor, reconstruction: Tensor) -> Tensor:
        """(b,): structural dissimilarity and absolute differences."""
        structure = 1 - ms_ssim(images, reconstruction, window=self.config.window)
        difference = (images - reconstruction).abs().mean((1, 2, 3))
        share = self.config.structure_share
        return share * structure + (1 - share) * difference

    def _gaussian_score(self, code: Tensor) -> Tensor:
        """(b,) in [0, 1]: one minus the Gaussian at the code."""
        # expm1 keeps the digits where the Gaussian is close to one.
        return -torch.expm1(-self._distance(code) / self.variance)

    def _distance(self, code: Tensor) -> Tensor:
        return (code - self.centre).square().sum(1)
