"""IF 2D: implicit field learning for unsupervised anomaly detection (Naval Marimont and Tarroni,
MICCAI 2021, arXiv:2106.05214), in two dimensions.

One network, the field, maps a code and a position to the intensity there; each training image has a
code of its own. The code of a new image is fitted to it by gradient descent, and what the field
cannot explain under the fitted code is anomalous. Scoring therefore costs hundreds of passes per
image. Codes belong to images without augmentation, so train it without.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import Field
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from squid.methods.base import (
    Batch,
    Method,
    MethodConfig,
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.conv import at_least_float32
from squid.nn.noise import NoiseSpec

Count = Annotated[int, Field(ge=1)]

GRAY_LEVELS = 256
FIT_ROWS = 2**16
"""Points fitted at once: bounds the memory of scoring, whatever the batch."""


class If2dConfig(MethodConfig):
    """Defaults are the authors'; batches, points and scoring, which they have in 3-D, are ours."""

    name: Literal["if2d"] = "if2d"
    classes: Count = 10
    """Classes of intensity."""
    latent: Count = 256
    """Length of a code."""
    hidden: Count = 512
    layers: Annotated[int, Field(ge=1, le=100)] = 8
    again: int = 4
    """The layer that takes code and position as inputs once more."""
    frequencies: Count = 10
    """Frequencies of the positional encoding."""
    dropout: float = 0.2
    code_weight: float = 1e-4
    """Weight of a code's length, for each point."""
    code_ramp: Count = 100
    """Epochs until that weight is reached."""
    points: Count = 4096
    """Points of each image in a training step."""
    fit_steps: Count = 300
    fit_points: Count = 4096
    """Points in a step of the fit; the steps cover all pixels in a fixed random order."""
    fit_lr: float = 1e-3
    image_score: Literal["mean", "percentile"] = "mean"
    """The mean of the heatmap or its 99th percentile."""
    epochs: int = 2001
    batch_size: int = 32
    optimizer: OptimizerConfig = OptimizerConfig(lr=5e-4, schedule="halving", period=500)
    code_optimizer: OptimizerConfig = OptimizerConfig(lr=1e-3, schedule="halving", period=500)


# ------------------------------------------------------- classes of intensity


def intensity_centres(images: Iterable[Tensor], classes: int) -> Tensor:
    """(classes,) ascending k-means centres of all pixels, in [0, 1].

    A histogram of gray levels stands for the pixels. With fewer levels than classes the highest
    centre repeats, and those classes stay empty.
    """
    counts = sum(torch.histc(batch.float(), GRAY_LEVELS, 0, 1).double() for batch in images)
    weights = torch.as_tensor(counts).cpu().numpy()
    used = np.flatnonzero(weights)
    # Weighted gray levels stand for all pixels: k-means of 256 points is fast.
    levels = (used[:, None] + 0.5) / GRAY_LEVELS
    means = KMeans(min(classes, len(used)), n_init=10, random_state=0)
    found = np.sort(means.fit(levels, sample_weight=weights[used]).cluster_centers_[:, 0])
    padded = np.pad(found, (0, classes - len(found)), mode="edge")
    return torch.from_numpy(padded).float()


def quantise(images: Tensor, centres: Tensor) -> Tensor:
    """(b, 1, h, w) -> (b, h, w) class of each pixel: the nearest centre, then the most frequent of
    the pixel and its neighbours above and to the left."""
    nearest = (images.squeeze(1)[..., None] - centres).abs().argmin(-1)  # (b, h, w)
    # A 2 x 2 mean of one-hot classes counts the votes of the neighbours.
    classes = torch.arange(len(centres), device=images.device)[:, None, None]
    votes = (nearest[:, None] == classes).float()  # (b, k, h, w)
    return F.avg_pool2d(F.pad(votes, (1, 0, 1, 0), mode="replicate"), 2, stride=1).argmax(1)


# ------------------------------------------------------------------ the field


def positional_encoding(side: int, frequencies: int) -> Tensor:
    """(side * side, 4 * frequencies): sines and cosines of both coordinates, which run from -1 to
    1, at doubling frequencies."""
    line = torch.linspace(-1, 1, side)
    coordinates = torch.cartesian_prod(line, line)  # (h w, 2)
    waves = coordinates[..., None] * torch.pi * 2.0 ** torch.arange(frequencies)
    return torch.cat((waves.sin(), waves.cos()), -1).flatten(1)


class Dropout:
    """Dropout from draws per point (b, n, layers) and per unit (b, layers, width).

    A unit drops where the sum of both draws, modulo one, is below `rate`: any two units of any two
    points drop independently, from far fewer draws than one for each pair.
    """

    def __init__(self, points: Tensor, units: Tensor, rate: float) -> None:
        self._points, self._units, self._rate = points, units, rate

    def __call__(self, x: Tensor, layer: int) -> Tensor:
        """(b, n, width) -> the same, zero where dropped and scaled elsewhere."""
        draws = (self._points[:, :, layer, None] + self._units[:, None, layer]) % 1.0
        return x * (draws >= self._rate) / (1 - self._rate)


class ImplicitField(nn.Module):
    """A weight-normalised MLP from code and position to class logits. Layer `again` takes both
    inputs once more."""

    def __init__(
        self, *, code: int, position: int, hidden: int, layers: int, outputs: int, again: int
    ) -> None:
        super().__init__()
        self.again = again
        inputs = code + position
        before = [inputs, *[hidden] * (layers - 1)]
        # Width of each layer's second input, which one layer only has.
        extra = [inputs if i == again else 0 for i in range(layers)]
        self.layers = nn.ModuleList(
            weight_norm(nn.Linear(a + b, hidden)) for a, b in zip(before, extra, strict=True)
        )
        self.head = nn.Linear(hidden, outputs)

    def forward(self, codes: Tensor, positions: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(b, c), (b or 1, n, g) -> (b, n, outputs)."""
        b, n = len(codes), positions.shape[1]
        inputs = torch.cat((codes[:, None].expand(b, n, -1), positions.expand(b, n, -1)), -1)
        x = inputs
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat((x, inputs), -1) if i == self.again else x))
            x = x if dropout is None else dropout(x, i)
        outputs: Tensor = self.head(x)
        return outputs


# ----------------------------------------------------------------- the method


class If2d(Method):
    """Score: mean cross-entropy of the image's intensity classes under its fitted code."""

    Config: ClassVar[type[MethodConfig]] = If2dConfig
    title = "IF 2D"
    paper = "Naval Marimont and Tarroni, MICCAI 2021, arXiv:2106.05214"
    training_only = ("codes", "epoch")
    fits_images = True

    centres: Tensor
    epoch: Tensor
    positions: Tensor
    order: Tensor

    def __init__(self, config: If2dConfig) -> None:
        super().__init__()
        self.config = config
        self.field = ImplicitField(
            code=config.latent,
            position=4 * config.frequencies,
            hidden=config.hidden,
            layers=config.layers,
            outputs=config.classes,
            again=config.again,
        )
        # Empty until `begin` knows the number of images; scoring fits codes of its own.
        self.codes = nn.Parameter(torch.empty(0, config.latent))
        # The order in which the fit takes pixels: random but fixed, so that scores are repeatable.
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(config.size**2, generator=generator, device="cpu")
        positions = positional_encoding(config.size, config.frequencies)  # (h w, g)
        self.register_buffer("centres", torch.zeros(config.classes))
        self.register_buffer("epoch", torch.zeros(()))
        self.register_buffer("positions", positions, persistent=False)
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
        # The codes come first: updating the field would spoil the forward pass that both share.
        codes = Objective(
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
        classes = quantise(batch.images, self.centres).flatten(1).gather(1, points)  # (b, n)
        codes = self.codes.index_select(0, batch.index)  # (b, c)
        dropout = Dropout(draws["dropout.points"], draws["dropout.units"], self.config.dropout)
        logits = self.field(codes, self.positions[points], dropout)  # (b, n, k)
        return {"codes": codes, "cross_entropy": _cross_entropy(logits, classes).sum(1).mean()}

    def _code_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        # The weight of lengths grows linearly over the first epochs.
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
        """To a length of at most one."""
        self.codes.div_(_length(self.codes).clamp_min(1)[:, None])

    @torch.no_grad()
    def _count_step(self) -> None:
        # A fraction of an epoch per step, counted on the device for the ramp in `_code_loss`.
        self.epoch.add_(self.config.batch_size / len(self.codes))

    # ----------------------------------------------------------------- scoring

    def heatmap(self, images: Tensor) -> Tensor:
        classes = quantise(images, self.centres).flatten(1)  # (b, h w)
        entropy = _cross_entropy(self._explain(classes), classes)
        maps = rearrange(entropy, "b (h w) -> b 1 h w", w=self.config.size)
        # The smallest of 3 x 3 neighbours removes lone peaks at edges, the mean smooths the rest.
        lowest = -F.max_pool2d(-maps, 3, stride=1, padding=1)
        return F.avg_pool2d(lowest, 15, stride=1, padding=7, count_include_pad=False)[:, 0]

    def score(self, images: Tensor) -> Tensor:
        pixels = self.heatmap(images).flatten(1)  # (b, h w)
        return pixels.mean(1) if self.config.image_score == "mean" else pixels.quantile(0.99, 1)

    def reconstruct(self, images: Tensor) -> Tensor:
        """The mean intensity that the field expects at each pixel."""
        logits = self._explain(quantise(images, self.centres).flatten(1))
        return (logits.softmax(-1) @ self.centres).view_as(images)

    def _explain(self, classes: Tensor) -> Tensor:
        """(b, h w) -> (b, h w, k): logits of each pixel under the code that fits the image."""
        # Images are fitted in groups; each code's gradient is its own, so groups change no score.
        group = max(1, FIT_ROWS // self.config.fit_points)
        return torch.cat([self._logits(self._fit(part)) for part in torch.split(classes, group)])

    def _fit(self, classes: Tensor) -> Tensor:
        """Codes (b, c) that start from zero, so that the result depends on the image alone."""
        codes = torch.zeros(len(classes), self.config.latent, device=classes.device)
        codes.requires_grad_()
        optimizer = torch.optim.Adam([codes], self.config.fit_lr)
        chunks = torch.split(self.order, self.config.fit_points)
        with torch.enable_grad():
            for step in range(self.config.fit_steps):
                # Every pixel in turn, in the fixed order.
                points = chunks[step % len(chunks)]
                logits = self.field(codes, self.positions[points][None])
                misfit = _cross_entropy(logits, classes[:, points]).sum()
                length = self.config.code_weight * len(points) * _length(codes).sum()
                # Gradients of the codes alone: the field's parameters must not collect any.
                (codes.grad,) = torch.autograd.grad(misfit + length, codes)
                optimizer.step()
        return codes.detach()

    def _logits(self, codes: Tensor) -> Tensor:
        """(b, c) -> (b, h w, k), in chunks of pixels."""
        chunks = torch.split(self.positions, self.config.fit_points)
        return torch.cat([self.field(codes, chunk[None]) for chunk in chunks], 1)


def _cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """(b, n, k), (b, n) -> (b, n)."""
    return F.cross_entropy(at_least_float32(logits).movedim(-1, 1), classes, reduction="none")


def _length(codes: Tensor) -> Tensor:
    """(b, c) -> (b,)."""
    length: Tensor = torch.linalg.vector_norm(codes, dim=-1)
    return length
