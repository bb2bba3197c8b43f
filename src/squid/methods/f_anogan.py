"""f-AnoGAN: fast unsupervised anomaly detection with generative adversarial networks (Schlegl et
al., Medical Image Analysis 2019, doi:10.1016/j.media.2019.01.010).

A Wasserstein GAN of normal images, then an encoder that inverts its generator. An image is
anomalous that the generator cannot reproduce, in pixels and in features of the critic.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
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
from squid.nn.conv import Statistics, at_least_float32
from squid.nn.noise import NoiseSpec
from squid.nn.pyramid import Side, count_halvings, smallest_side
from squid.nn.residual import (
    CodeToMaps,
    Norm,
    ResidualDoublings,
    ResidualHalvings,
    he_conv,
)


class FAnoganConfig(MethodConfig):
    """The authors' settings: 64 pixels, a residual WGAN-GP, the encoder they call izi_f."""

    name: Literal["f_anogan"] = "f_anogan"
    size: Side = 64
    width: PositiveInt = 64
    """Channels at full resolution; they double up to eight times as many."""
    code: PositiveInt = 128
    penalty: float = 10.0
    """Weight of the gradient penalty."""
    critic_steps: PositiveInt = 5
    """Updates of the critic for one of the generator."""
    kappa: float = 1.0
    """Weight of the feature distance, in the encoder's loss and in the score."""
    steps: PositiveInt = 100_000
    """Steps of the GAN, counted in updates of the critic."""
    encoder_steps: PositiveInt = 50_000
    batch_size: PositiveInt = 64
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-4, betas=(0.0, 0.9))
    """The optimiser of the critic and of the generator."""
    encoder_optimizer: OptimizerConfig = OptimizerConfig(lr=5e-5, betas=(0.0, 0.9))
    """The authors' RMSProp, which averages squares with 0.9 from one on, as Adam without momentum.
    torch's averages from zero on: its first step already saturates the code's tanh."""


class Generator(nn.Module):
    """A code (b, d) -> an image (b, 1, h, w) in [-1, 1]."""

    def __init__(self, config: FAnoganConfig) -> None:
        super().__init__()
        levels = count_halvings(config.size)
        self.doublings = ResidualDoublings(config.width, levels)
        self.enter = CodeToMaps(config.code, self.doublings.inputs, smallest_side(config.size))
        self.leave = nn.Conv2d(config.width, 1, 3, padding=1)

    def forward(self, code: Tensor, statistics: Statistics | None = None) -> Tensor:
        return torch.tanh(self.leave(self.doublings(self.enter(code), statistics)))


class Critic(nn.Module):
    """Images (b, 1, h, w) in [-1, 1] -> (b, outputs). With one output it is the GAN's critic; the
    encoder has the same network with a code as output, and batch normalisation."""

    def __init__(self, config: FAnoganConfig, outputs: int, norm: Norm) -> None:
        super().__init__()
        self.enter = he_conv(1, config.width)
        levels = count_halvings(config.size)
        self.halvings = ResidualHalvings(config.width, levels, norm)
        self.head = nn.Linear(self.halvings.outputs * smallest_side(config.size) ** 2, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return at_least_float32(self.head(self.features(images)))

    def features(self, images: Tensor) -> Tensor:
        """(b, c * h * w), the inputs of the head."""
        maps: Tensor = self.halvings(self.enter(images))
        return maps.flatten(1)


class FAnogan(Method):
    """Generator and critic are trained in the first stage, the encoder in the second. Score: mean
    squared error of the reconstruction, in pixels and in the critic's features."""

    Config: ClassVar[type[MethodConfig]] = FAnoganConfig
    title = "f-AnoGAN"
    paper = "Schlegl et al., Medical Image Analysis 2019, doi:10.1016/j.media.2019.01.010"
    training_only = ("critic.head.",)

    def __init__(self, config: FAnoganConfig) -> None:
        super().__init__()
        self.config = config
        self.generator = Generator(config)
        self.critic = Critic(config, 1, "layer")
        self.encoder = Critic(config, config.code, "batch")

    # ---------------------------------------------------------------- training

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """A code for each update of critic and generator; `mix` places the penalised image between
        a real and a generated one."""
        return {
            "critic.code": NoiseSpec((b, self.config.code), "normal"),
            "generator.code": NoiseSpec((b, self.config.code), "normal"),
            "mix": NoiseSpec((b, 1, 1, 1), "uniform"),
        }

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        critic = Objective(
            name="critic",
            parameters=list(self.critic.parameters()),
            loss=self._critic_loss,
            optimizer=config.optimizer,
            compilable=False,  # torch.compile has no double backward
        )
        generator = Objective(
            name="generator",
            parameters=list(self.generator.parameters()),
            loss=self._generator_loss,
            optimizer=config.optimizer,
            every=config.critic_steps,
        )
        encoder = Objective(
            name="encoder",
            parameters=list(self.encoder.parameters()),
            loss=self._encoder_loss,
            optimizer=config.encoder_optimizer,
        )
        size = config.batch_size
        return (
            Stage(
                name="gan",
                objectives=(critic, generator),
                batch_size=size,
                steps=config.steps,
                snapshots=False,  # scores need the encoder
            ),
            Stage(
                name="encoder", objectives=(encoder,), batch_size=size, steps=config.encoder_steps
            ),
        )

    def _critic_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        real = to_signed(batch.images)
        # This loss updates the critic only.
        with torch.no_grad():
            fake = self.generator(batch.noise["critic.code"])
        penalty = gradient_penalty(self.critic, real, fake, batch.noise["mix"])
        distance = self.critic(fake).mean() - self.critic(real).mean()
        return {"wasserstein": distance, "penalty": self.config.penalty * penalty}

    def _generator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        # A code of its own: the critic has just learned from the other one.
        fake = self.generator(batch.noise["generator.code"])
        return {"generator": -self.critic(fake).mean()}

    def _encoder_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        pixels, features = self._distances(batch.images)
        return {"pixels": pixels.mean(), "features": self.config.kappa * features.mean()}

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        pixels, features = self._distances(images)
        return pixels + self.config.kappa * features

    def reconstruct(self, images: Tensor) -> Tensor:
        return to_unit(self._reconstruct_signed(to_signed(images)))

    def heatmap(self, images: Tensor) -> Tensor:
        return (images - self.reconstruct(images)).abs().squeeze(1)

    def _distances(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(b,) each: mean squares of the differences in pixels, and in the critic's features."""
        real = to_signed(images)
        fake = self._reconstruct_signed(real)
        pixels = (real - at_least_float32(fake)).square().mean((1, 2, 3))
        difference = self.critic.features(real) - self.critic.features(fake)
        return pixels, at_least_float32(difference).square().mean(1)

    def _reconstruct_signed(self, signed: Tensor) -> Tensor:
        """The generator has been trained before: its tracked statistics serve in training mode,
        too, and stay as they are."""
        reconstruction: Tensor = self.generator(torch.tanh(self.encoder(signed)), "running")
        return reconstruction


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, mix: Tensor
) -> Tensor:
    """Mean (||gradient|| - 1)^2 of the critic, at images between real and generated ones."""
    # The graph is kept: the penalty is itself differentiated for the critic's weights.
    between = torch.lerp(real, fake.to(real.dtype), mix).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms = torch.linalg.vector_norm(at_least_float32(gradient), dim=(1, 2, 3))  # (b,)
    penalty: Tensor = (norms - 1).square().mean()
    return penalty
