"""Cut a patch out of an image, change its brightness, turn it and paste it elsewhere."""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor


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
    local = _local(images, cut, size)  # (b, h, w, 2)
    half = rearrange(size / 2, "b two -> b 1 1 two")
    inside = ((local >= -half) & (local < half)).all(-1)[:, None]  # (b, 1, h, w)
    patch = _jitter(_sample(images, local, cut, size), inside, cut)
    return torch.where(inside, patch, images)


def _local(images: Tensor, cut: Cut, size: Tensor) -> Tensor:
    """Where each pixel's centre lies in the patch before it was turned: (b, h, w, 2)."""
    cos, sin = cut.angle.cos(), cut.angle.sin()
    turned = torch.stack(
        (size[:, 0] * cos.abs() + size[:, 1] * sin.abs(),
         size[:, 0] * sin.abs() + size[:, 1] * cos.abs()), -1,
    )  # fmt: skip
    centre = _centre(images, cut.target, turned)
    y, x = (_grid(images) - rearrange(centre, "b two -> b 1 1 two")).unbind(-1)  # (b, h, w)
    cos, sin = (rearrange(v, "b -> b 1 1") for v in (cos, sin))
    return torch.stack((cos * y - sin * x, sin * y + cos * x), -1)


def _sample(images: Tensor, local: Tensor, cut: Cut, size: Tensor) -> Tensor:
    """The nearest pixel of the source, for every pixel of the image."""
    height, width = images.shape[-2:]
    centre = _centre(images, cut.source, size)
    y, x = (local + rearrange(centre, "b two -> b 1 1 two")).floor().long().unbind(-1)
    index = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)  # (b, h, w)
    return images.flatten(1).gather(1, index.flatten(1)).view_as(images)


def _jitter(patch: Tensor, inside: Tensor, cut: Cut) -> Tensor:
    brightness, contrast = (rearrange(v, "b -> b 1 1 1") for v in (cut.brightness, cut.contrast))
    bright = patch * brightness
    pixels = inside.sum((1, 2, 3), keepdim=True).clamp_min(1)
    mean = (bright * inside).sum((1, 2, 3), keepdim=True) / pixels
    return (mean + contrast * (bright - mean)).clamp(0, 1)


def _centre(images: Tensor, place: Tensor, size: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    room = torch.stack((height - size[:, 0], width - size[:, 1]), -1)
    return size / 2 + place * room  # (b, 2)


def _grid(images: Tensor) -> Tensor:
    rows, columns = (torch.arange(n, device=images.device) + 0.5 for n in images.shape[-2:])
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)  # (h, w, 2)
