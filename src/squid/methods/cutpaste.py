"""CutPaste: self-supervised learning for anomaly detection and localization (Li et al., CVPR 2021,
arXiv:2104.04015).

A network learns to classify images as whole or with a pasted patch. The score is the Mahalanobis
distance of an image's embedding from those of normal images.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
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
    Objective,
    OptimizerConfig,
    Shared,
    Stage,
)
from squid.nn.backbone import pooled
from squid.nn.conv import BatchNorm, at_least_float32
from squid.nn.gaussian import Gaussian, ledoit_wolf
from squid.nn.noise import NoiseSpec


class CutPasteConfig(MethodConfig):
    """Defaults are the paper's 3-way setting, published at 256 pixels."""

    name: Literal["cutpaste"] = "cutpaste"
    ways: Literal[2, 3] = 3
    """2 classes: whole and cut-paste; 3: also scars."""
    width: int = 64
    """Channels of ResNet18's first level."""
    head_layers: Annotated[int, Field(ge=0, le=100)] = 1
    """Hidden layers as wide as the embedding, before the one of `head_width`."""
    head_width: int = 128
    area: tuple[float, float] = (0.02, 0.15)
    """Range of a cut patch's area, as a share of the image."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    scar_width: tuple[float, float] = (2, 16)
    """Range of a scar's width in pixels of a 256-pixel image, as for its height."""
    scar_height: tuple[float, float] = (10, 25)
    scar_angle: float = 45.0
    """Largest rotation in either direction, in degrees."""
    jitter: float = 0.1
    """Largest relative change of a patch's brightness and contrast."""
    steps: int = 65_536
    batch_size: int = 32
    """Whole images of a step; the network gets each of them `ways` times."""
    optimizer: OptimizerConfig = OptimizerConfig(
        kind="sgd", lr=0.03, final_lr=0.0, schedule="cosine", momentum=0.9, weight_decay=3e-5
    )


# -------------------------------------------------------------------- pasting


@dataclass(frozen=True)
class Cut:
    """One patch per image; all are (b,), except places, which are (b, 2) as (vertical, horizontal)
    in [0, 1]: from one border of the image to the other, the patch just inside."""

    height: Tensor
    width: Tensor
    """In whole pixels, as the height."""
    source: Tensor
    target: Tensor
    angle: Tensor
    """In radians, about the centre of the patch."""
    brightness: Tensor
    """A factor."""
    contrast: Tensor
    """A factor of the distance to the patch's mean."""


def paste(images: Tensor, cut: Cut) -> Tensor:
    """(b, 1, h, w) -> (b, 1, h, w): each image with its own patch pasted into it."""
    size = torch.stack((cut.height, cut.width), -1)  # (b, 2)
    local = _patch_coordinates(images, cut, size)  # (b, h, w, 2)
    # A patch has a size of its own in each image, so it is a mask and not a slice.
    half = rearrange(size / 2, "b two -> b 1 1 two")
    inside = ((local >= -half) & (local < half)).all(-1)[:, None]  # (b, 1, h, w)
    patch = _jitter(_sample(images, local, cut, size), inside, cut)
    return torch.where(inside, patch, images)


def _patch_coordinates(images: Tensor, cut: Cut, size: Tensor) -> Tensor:
    """(b, h, w, 2): where each pixel's centre lies in the patch before its rotation."""
    # The box around the rotated patch stays within the image.
    cos, sin = cut.angle.cos(), cut.angle.sin()
    height = size[:, 0] * cos.abs() + size[:, 1] * sin.abs()
    width = size[:, 0] * sin.abs() + size[:, 1] * cos.abs()
    centre = _centre(images, cut.target, torch.stack((height, width), -1))
    # The inverse rotation takes each pixel of the image back into the patch.
    y, x = (_pixel_centres(images) - rearrange(centre, "b two -> b 1 1 two")).unbind(-1)
    cos, sin = (rearrange(v, "b -> b 1 1") for v in (cos, sin))
    return torch.stack((cos * y - sin * x, sin * y + cos * x), -1)


def _sample(images: Tensor, local: Tensor, cut: Cut, size: Tensor) -> Tensor:
    """(b, 1, h, w): the nearest pixel of the source, for every pixel of the image."""
    height, width = images.shape[-2:]
    centre = _centre(images, cut.source, size)
    y, x = (local + rearrange(centre, "b two -> b 1 1 two")).floor().long().unbind(-1)
    # Pixels outside the patch are looked up as well and masked afterwards, so shapes stay fixed.
    index = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)  # (b, h, w)
    return images.flatten(1).gather(1, index.flatten(1)).view_as(images)


def _jitter(patch: Tensor, inside: Tensor, cut: Cut) -> Tensor:
    brightness, contrast = (rearrange(v, "b -> b 1 1 1") for v in (cut.brightness, cut.contrast))
    bright = patch * brightness
    # The mean of the patch's own pixels, about which the contrast changes.
    pixels = inside.sum((1, 2, 3), keepdim=True).clamp_min(1)
    mean = (bright * inside).sum((1, 2, 3), keepdim=True) / pixels
    return (mean + contrast * (bright - mean)).clamp(0, 1)


def _centre(images: Tensor, place: Tensor, size: Tensor) -> Tensor:
    """(b, 2) in pixels, of a box of that size at that place."""
    height, width = images.shape[-2:]
    room = torch.stack((height - size[:, 0], width - size[:, 1]), -1)
    return size / 2 + place * room


def _pixel_centres(images: Tensor) -> Tensor:
    """(h, w, 2)."""
    rows, columns = (torch.arange(n, device=images.device) + 0.5 for n in images.shape[-2:])
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)


# ----------------------------------------------------------------- the network


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _convolution(inputs, outputs, 3, stride),
            BatchNorm(outputs),
            nn.ReLU(),
            _convolution(outputs, outputs, 3),
            BatchNorm(outputs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(_convolution(inputs, outputs, 1, stride), BatchNorm(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """(b, 1, h, w) -> (b, 8 * width, h / 32, w / 32), trained from scratch; published with a width
    of 64."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.channels = 8 * width
        self.stem = nn.Sequential(
            _convolution(1, width, 7, 2), BatchNorm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.levels = nn.Sequential(
            *(
                nn.Sequential(
                    BasicBlock(inputs, outputs, stride=1 if i == 0 else 2),
                    BasicBlock(outputs, outputs, stride=1),
                )
                for i, (inputs, outputs) in enumerate(pairwise(widths))
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.levels(self.stem(images))
        return maps


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _head(inputs: int, config: CutPasteConfig) -> nn.Sequential:
    """Linear layers as 1x1 convolutions, because our batch normalisation is one of maps."""
    widths = [inputs] * (1 + config.head_layers) + [config.head_width]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 1, bias=False), BatchNorm(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(config.head_width, config.ways, 1))


# ------------------------------------------------------------------ the method


class CutPaste(Method):
    """Score: Mahalanobis distance of the embedding from those of normal images."""

    Config: ClassVar[type[MethodConfig]] = CutPasteConfig
    title = "CutPaste"
    paper = "Li et al., CVPR 2021, arXiv:2104.04015"
    training_only = ("head.",)

    def __init__(self, config: CutPasteConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ResNet18(config.width)
        self.head = _head(self.encoder.channels, config)
        self.gaussian = Gaussian()

    # ---------------------------------------------------------------- training

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        names = ("cut", "scar")[: self.config.ways - 1]
        return {name: NoiseSpec((b, 9), "uniform") for name in names}

    def stages(self) -> tuple[Stage, ...]:
        classify = Objective(
            name="classify",
            parameters=(*self.encoder.parameters(), *self.head.parameters()),
            loss=self._loss,
            optimizer=self.config.optimizer,
            compilable=False,  # fused by Inductor, pasted patches held pixels of other places
        )
        config = self.config
        return (
            Stage(
                name="train",
                objectives=(classify,),
                batch_size=config.batch_size,
                steps=config.steps,
            ),
        )

    def _loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        # All views in one pass, so that batch normalisation sees the classes together.
        views = self.views(batch)
        maps = F.adaptive_avg_pool2d(self.encoder(torch.cat(views)), 1)  # (ways * b, c, 1, 1)
        logits = at_least_float32(self.head(maps).flatten(1))  # (ways * b, ways)
        # The class of a view is its place in the list: whole, cut-paste, scar.
        kinds = torch.arange(len(views), device=logits.device)
        labels = kinds.repeat_interleave(len(batch.images))
        return {"cross_entropy": F.cross_entropy(logits, labels)}

    def views(self, batch: Batch) -> list[Tensor]:
        """The images whole, with a pasted patch, and (3-way) with a pasted scar."""
        images, noise = batch.images, batch.noise
        views = [images, paste(images, self._cut(noise["cut"]))]
        if self.config.ways == 3:
            views.append(paste(images, self._scar(noise["scar"])))
        return views

    def _cut(self, draws: Tensor) -> Cut:
        config = self.config
        area = _between(config.area, draws[:, 0]) * config.size**2
        # The aspect is uniform in its logarithm: wide and tall patches are equally frequent.
        low, high = map(math.log, config.aspect)
        aspect = _between((low, high), draws[:, 1]).exp()
        height, width = (area / aspect).sqrt(), (area * aspect).sqrt()
        return self._patch(height, width, torch.zeros_like(area), draws)

    def _scar(self, draws: Tensor) -> Cut:
        # Scars are given in pixels of a 256-pixel image and scaled to this one.
        config, scale = self.config, self.config.size / 256
        height = _between(config.scar_height, draws[:, 0]) * scale
        width = _between(config.scar_width, draws[:, 1]) * scale
        largest = math.radians(config.scar_angle)
        return self._patch(height, width, _between((-largest, largest), draws[:, 8]), draws)

    def _patch(self, height: Tensor, width: Tensor, angle: Tensor, draws: Tensor) -> Cut:
        # Columns: 0 and 1 the size, 2 to 5 both places, 6 and 7 the jitter, 8 the angle.
        factors = _between((1 - self.config.jitter, 1 + self.config.jitter), draws[:, 6:8])
        return Cut(
            height=height.round().clamp_min(1),
            width=width.round().clamp_min(1),
            source=draws[:, 2:4],
            target=draws[:, 4:6],
            angle=angle,
            brightness=factors[:, 0],
            contrast=factors[:, 1],
        )

    def finalize(self, batches: Iterable[Batch]) -> None:
        # Ledoit-Wolf, because there may be fewer images than dimensions.
        embeddings = torch.cat([self._embed(batch.images) for batch in batches])  # (n, d)
        self.gaussian.fit(embeddings.mean(0)[None], ledoit_wolf(embeddings)[None])

    # ----------------------------------------------------------------- scoring

    def score(self, images: Tensor) -> Tensor:
        return self.gaussian.distance(self._embed(images)[:, None])[:, 0]

    def _embed(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, d), of length one."""
        return F.normalize(pooled(self.encoder(images)))


def _between(limits: tuple[float, float], draws: Tensor) -> Tensor:
    low, high = limits
    return low + (high - low) * draws
