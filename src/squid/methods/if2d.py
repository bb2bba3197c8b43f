"""IF 2D: an implicit field with a code for each image; a new image's code is fitted to it, and what
the field cannot explain is anomalous (Naval Marimont and Tarroni, MICCAI 2021, in two dimensions).

Scoring costs hundreds of passes for each image. Codes belong to images as they are, so train it
without augmentation.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import Field
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
from squid.nn.conv import at_least_float32
from squid.nn.field import Dropout, ImplicitField, place_encoding
from squid.nn.intensity import intensity_centres, quantise

Count = Annotated[int, Field(ge=1)]

FIT_ROWS = 2**16
"""Points fitted at once: bounds the memory of scoring, whatever the batch."""


class If2dConfig(MethodConfig):
    """Defaults are the authors'; batches, points and scoring, which they have in 3-D, are ours."""

    name: Literal["if2d"] = "if2d"
    classes: Count = 10
    """Of intensity."""
    latent: Count = 256
    """Length of a code."""
    hidden: Count = 512
    layers: Count = 8
    again: int = 4
    """The layer that sees code and place once more."""
    frequencies: Count = 10
    """Of the encoding of places."""
    dropout: float = 0.2
    code_weight: float = 1e-4
    """Of a code's length, for each point."""
    code_ramp: Count = 100
    """Epochs until that weight is reached."""
    points: Count = 4096
    """Of each image in a step."""
    fit_steps: Count = 300
    fit_points: Count = 4096
    """In a step of the fit; the steps go through all pixels in a fixed random order."""
    fit_lr: float = 1e-3
    image_score: Literal["mean", "percentile"] = "mean"
    """Of the heatmap: its mean or its 99th percentile."""
    epochs: int = 2001
    batch_size: int = 32
    optimizer: OptimizerConfig = OptimizerConfig(lr=5e-4, schedule="halving", period=500)
    code_optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3, schedule="halving", period=500)


class If2d(Method):
    """Score: mean cross-entropy of the image's intensity classes under its fitted code."""

    Config: ClassVar[type[MethodConfig]] = If2dConfig
    title = "IF 2D"
    paper = "Naval Marimont and Tarroni, MICCAI 2021, arXiv:2106.05214"
    training_only = ("codes", "epoch")
    fits_images = True

    centres: Tensor
    epoch: Tensor
    places: Tensor
    order: Tensor

    def __init__(self, config: If2dConfig) -> None:
        super().__init__()
        self.config = config
        self.field = ImplicitField(
            code=config.latent,
            place=4 * config.frequencies,
            hidden=config.hidden,
            layers=config.layers,
            outputs=config.classes,
            again=config.again,
        )
        self.codes = nn.Parameter(torch.empty(0, config.latent))
        pixels = config.size**2
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(pixels, generator=generator, device="cpu")
        places = place_encoding(config.size, config.frequencies)
        self.register_buffer("centres", torch.zeros(config.classes))
        self.register_buffer("epoch", torch.zeros(()))
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("order", order, persistent=False)

    # ---------------------------------------------------------------- training

    def begin(self, images: int) -> None:
        latent = self.config.latent
        self.codes = nn.Parameter(torch.randn(images, latent) / latent**0.5)

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        config = self.config
        shapes = {
            "points": (b, config.points),
            "dropout.points": (b, config.points, config.layers),
            "dropout.units": (b, config.layers, config.hidden),
        }
        return {name: NoiseSpec(shape, "uniform") for name, shape in shapes.items()}

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        codes = Objective(  # before the field, whose update would spoil the shared forward
            name="codes",
            parameters=(self.codes,),
            loss=self._code_loss,
            optimizer=config.code_optimizer,
            after=self._shorten_codes,
        )
        field = Objective(
            name="field",
            parameters=tuple(self.field.parameters()),
            loss=self._field_loss,
            optimizer=config.optimizer,
            after=self._count_step,
        )
        return (
            Stage(
                name="train",
                objectives=(codes, field),
                batch_size=config.batch_size,
                epochs=config.epochs,
                shared=self._shared,
                prepare=self._find_centres,
            ),
        )

    def _find_centres(self, batches: Iterable[Batch]) -> None:
        images = (batch.images for batch in batches)
        self.centres.copy_(intensity_centres(images, self.config.classes))

    def _shared(self, batch: Batch, active: frozenset[str]) -> Shared:
        draws = batch.noise
        points = (draws["points"] * self.config.size**2).long()  # (b, n)
        classes = quantise(batch.images, self.centres).flatten(1).gather(1, points)
        codes = self.codes.index_select(0, batch.index)  # (b, c)
        dropout = Dropout(draws["dropout.points"], draws["dropout.units"], self.config.dropout)
        logits = self.field(codes, self.places[points], dropout)
        return {"codes": codes, "cross_entropy": _cross_entropy(logits, classes).sum(1).mean()}

    def _code_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        ramp = (self.epoch / self.config.code_ramp).clamp_max(1)
        length = self.config.points * _length(shared["codes"]).mean()
        return {
            "cross_entropy": shared["cross_entropy"],
            "length": self.config.code_weight * ramp * length,
        }

    def _field_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        return {"cross_entropy": shared["cross_entropy"]}

    @torch.no_grad()
    def _shorten_codes(self) -> None:
        """None is longer than one."""
        self.codes.div_(_length(self.codes).clamp_min(1)[:, None])

    @torch.no_grad()
    def _count_step(self) -> None:
        self.epoch.add_(self.config.batch_size / len(self.codes))

    # ----------------------------------------------------------------- scoring

    def heatmap(self, images: Tensor) -> Tensor:
        classes = quantise(images, self.centres).flatten(1)  # (b, h w)
        entropy = _cross_entropy(self._explain(classes), classes)
        maps = rearrange(entropy, "b (h w) -> b 1 h w", w=self.config.size)
        lowest = -F.max_pool2d(-maps, 3, stride=1, padding=1)
        return F.avg_pool2d(lowest, 15, stride=1, padding=7, count_include_pad=False)[:, 0]

    def score(self, images: Tensor) -> Tensor:
        places = self.heatmap(images).flatten(1)
        return places.mean(1) if self.config.image_score == "mean" else places.quantile(0.99, 1)

    def reconstruct(self, images: Tensor) -> Tensor:
        """The mean intensity that the field expects at each pixel."""
        logits = self._explain(quantise(images, self.centres).flatten(1))
        return (logits.softmax(-1) @ self.centres).view_as(images)

    def _explain(self, classes: Tensor) -> Tensor:
        """(b, h w) -> (b, h w, k): logits of each pixel under the code that fits the image."""
        group = max(1, FIT_ROWS // self.config.fit_points)
        return torch.cat([self._draw(self._fit(part)) for part in torch.split(classes, group)])

    def _fit(self, classes: Tensor) -> Tensor:
        """Codes (b, c) that start from zero, so that the result depends on the image alone."""
        codes = torch.zeros(len(classes), self.config.latent, device=classes.device)
        codes.requires_grad_()
        optimizer = torch.optim.Adam([codes], self.config.fit_lr)
        chunks = torch.split(self.order, self.config.fit_points)
        with torch.enable_grad():
            for step in range(self.config.fit_steps):
                points = chunks[step % len(chunks)]
                logits = self.field(codes, self.places[points][None])
                misfit = _cross_entropy(logits, classes[:, points]).sum()
                length = self.config.code_weight * len(points) * _length(codes).sum()
                (codes.grad,) = torch.autograd.grad(misfit + length, codes)
                optimizer.step()
        return codes.detach()

    def _draw(self, codes: Tensor) -> Tensor:
        chunks = torch.split(self.places, self.config.fit_points)
        return torch.cat([self.field(codes, chunk[None]) for chunk in chunks], 1)


def _cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """(b, n, k), (b, n) -> (b, n)."""
    return F.cross_entropy(at_least_float32(logits).movedim(-1, 1), classes, reduction="none")


def _length(codes: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(codes, dim=-1)
    return length
