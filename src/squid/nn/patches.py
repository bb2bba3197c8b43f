"""The image as a grid of patches (SQUID, sec. 3.1).

Positions run row by row within each image, and images follow each other: index = image * grid**2 +
row * grid + column. Copies are written channels-last, the layout in which convolutions are fastest,
so that a channels-last network stays channels-last.
"""

from einops import rearrange
from torch import Tensor


def split(x: Tensor, grid: int) -> Tensor:
    """(b, c, grid*h, grid*w) -> (b*grid*grid, c, h, w)."""
    return rearrange(x, "b c (i h) (j w) -> (b i j) h w c", i=grid, j=grid).movedim(-1, 1)


def merge(x: Tensor, grid: int) -> Tensor:
    """(b*grid*grid, c, h, w) -> (b, c, grid*h, grid*w): the inverse of `split`."""
    return rearrange(x, "(b i j) c h w -> b (i h) (j w) c", i=grid, j=grid).movedim(-1, 1)
