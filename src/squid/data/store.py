"""Images decoded once and kept as bytes; batches are gathered and augmented on the device."""

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from squid.config import Config
from squid.data.pixels import to_unit

Interpolation = Literal["nearest", "bilinear"]


class Augment(Config):
    """Random shift and scale of a training image (paper, sec. 4.4: +-5 % and 0.95 to 1.05)."""

    shift: float = Field(0.05, ge=0.0, lt=1.0)
    """Largest shift in either direction, as a share of the image."""
    scale: tuple[float, float] = (0.95, 1.05)
    interpolation: Interpolation = "nearest"
    """`nearest` as the authors do."""

    def draw(self, b: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """(b, 3): shift to the right and down as a share of the image, and scale."""
        unit = torch.rand(b, 3, generator=generator, device=generator.device)
        shift = (2.0 * unit[:, :2] - 1.0) * self.shift
        smallest, largest = self.scale
        scale = smallest + (largest - smallest) * unit[:, 2:]
        return torch.cat([shift, scale], dim=1).to(device, non_blocking=True)


class ImageStore:
    """uint8 images on the device, or in pinned host memory where they exceed `budget_bytes`."""

    def __init__(
        self,
        pixels: Tensor,
        device: torch.device | str,
        budget_bytes: int | None = None,
        interpolation: Interpolation = "nearest",
    ) -> None:
        self.device = torch.device(device)
        self.interpolation = interpolation
        self.on_device = budget_bytes is None or pixels.nbytes <= budget_bytes
        if self.on_device:
            self.pixels = pixels.to(self.device)
        else:
            self.pixels = pixels.pin_memory() if self.device.type == "cuda" else pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, index: Tensor, affine: Tensor | None = None) -> Tensor:
        """(b,) indices -> (b, 1, h, w) float32 in [0, 1] on the device.

        `affine` is (b, 3): shift to the right, shift down (shares of the image), scale; pixels
        from outside are zero. With all on the device this neither waits nor branches on values.
        """
        images = self.pixels.index_select(0, index.to(self.pixels.device))
        images = images.to(self.device, non_blocking=True)
        if affine is not None:
            images = transform(images, affine, self.interpolation)
        return to_unit(images)

    def batches(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images in order, not augmented, with their indices; the last batch may be smaller."""
        for start in range(0, len(self), batch_size):
            end = min(start + batch_size, len(self))
            index = torch.arange(start, end, device=self.pixels.device)
            yield self.batch(index), index.to(self.device)


def transform(images: Tensor, affine: Tensor, interpolation: Interpolation) -> Tensor:
    """Shift and scale about the centre. Rows and columns move apart, so each is one gather."""
    shift_x, shift_y, scale = affine.to(images.device).unbind(1)
    rows = _source(images.shape[-2], shift_y, scale)  # (b, h)
    columns = _source(images.shape[-1], shift_x, scale)  # (b, w)
    take = _nearest if interpolation == "nearest" else _linear
    moved = take(images, rows, -2)
    return take(moved, columns, -1)  # (b, 1, h, w)


def _source(length: int, shift: Tensor, scale: Tensor) -> Tensor:
    """(b, length): where the centre of each output pixel lies in the input, in pixels."""
    centres = torch.arange(length, device=shift.device, dtype=torch.float32) + 0.5
    middle = length / 2
    return (centres - middle - length * shift[:, None]) / scale[:, None] + middle


def _nearest(images: Tensor, source: Tensor, dim: int) -> Tensor:
    return _pick(images, source.floor().long(), dim)


def _linear(images: Tensor, source: Tensor, dim: int) -> Tensor:
    # The pixel before and the one after, weighted by how near their centres are.
    first = (source - 0.5).floor()
    weight = _along(source - 0.5 - first, dim)
    before, after = first.long(), first.long() + 1
    return _pick(images, before, dim) * (1.0 - weight) + _pick(images, after, dim) * weight


def _pick(images: Tensor, place: Tensor, dim: int) -> Tensor:
    """Pixels at the given positions along `dim`, zero outside."""
    length = images.shape[dim]
    inside = _along((place >= 0) & (place < length), dim)
    index = _along(place.clamp(0, length - 1), dim).expand(images.shape)
    return images.gather(dim, index) * inside


def _along(values: Tensor, dim: int) -> Tensor:
    """(b, length) -> (b, 1, length, 1) or (b, 1, 1, length)."""
    return values[:, None, :, None] if dim == -2 else values[:, None, None, :]
