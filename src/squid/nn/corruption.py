"""Ways to spoil an image that a network then restores. All draws come from outside."""

import torch
from einops import rearrange
from torch import Tensor


def shuffle_blocks(images: Tensor, order: Tensor, chosen: Tensor, block: int) -> Tensor:
    """Shuffles the pixels within the chosen blocks.

    `order` (b, 1, h, w) is uniform and sorts them; `chosen` (b, n) is one for blocks to shuffle,
    row by row.
    """
    layout = "b 1 (h i) (w j) -> b (h w) (i j)"
    pixels = rearrange(images, layout, i=block, j=block)  # (b, n, i*j)
    places = rearrange(order, layout, i=block, j=block).argsort(-1)
    mixed = torch.where(chosen[..., None] > 0, pixels.gather(-1, places), pixels)
    back = "b (h w) (i j) -> b 1 (h i) (w j)"
    return rearrange(mixed, back, h=images.shape[2] // block, i=block)


def bend_intensities(images: Tensor, bends: Tensor) -> Tensor:
    """A rising Bezier curve from (0, 0) to (1, 1), given two uniform `bends` (b, 2)."""
    low, high = bends.amin(1)[:, None, None, None], bends.amax(1)[:, None, None, None]
    rest = 1 - images
    return 3 * rest**2 * images * low + 3 * rest * images**2 * high + images**3


def fill_box(images: Tensor, box: Tensor, sides: tuple[float, float] = (0.125, 0.4)) -> Tensor:
    """One gray box per image; `box` (b, 5) is uniform: two places, two sides, the gray.

    `sides` are the shortest and the longest side, as shares of the image's.
    """
    height, width = images.shape[-2:]
    top, left, tall, wide, gray = box.unbind(1)
    rows = _within(height, top, _between(tall, sides))  # (b, h)
    columns = _within(width, left, _between(wide, sides))  # (b, w)
    inside = (rows[:, :, None] & columns[:, None, :])[:, None]  # (b, 1, h, w)
    return torch.where(inside, gray.to(images.dtype)[:, None, None, None], images)


def _between(share: Tensor, limits: tuple[float, float]) -> Tensor:
    return limits[0] + (limits[1] - limits[0]) * share


def _within(length: int, place: Tensor, extent: Tensor) -> Tensor:
    """(b, length): pixels whose centre lies in a stretch that stays within the image."""
    centres = (torch.arange(length, device=place.device) + 0.5) / length
    start = place * (1 - extent)
    return (centres >= start[:, None]) & (centres < (start + extent)[:, None])
