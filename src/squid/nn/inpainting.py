"""The in-painting block and the shortcut around it (SQUID, sec. 3.3)."""

from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from squid.nn.conv import BatchNorm
from squid.nn.memory import Memory

Layer = Literal["transformer", "standard", "convolution", "none"]
ShortcutKind = Literal["masked", "soft", "residual", "straight", "none"]


def masked_shortcut(x: Tensor, inpainted: Tensor, mask: Tensor) -> Tensor:
    """The in-painted feature where the mask is one, else the original feature (eq. 2)."""
    mask = mask.to(x.dtype)
    return mask * inpainted + (1 - mask) * x


def shortcut(
    x: Tensor, inpainted: Tensor, kind: ShortcutKind, *, mask: Tensor | None, rho: float
) -> Tensor:
    """`masked` acts where a mask is given, that is in training; `soft` is its mean and `residual` a
    sum, in training and after; `straight` passes gradients around the block but no feature."""
    if kind == "residual":
        return x + inpainted
    # The value is `inpainted` alone, and the gradient of x is one, as through an identity.
    if kind == "straight":
        return inpainted + (x - x.detach())
    if kind == "soft":
        return (1 - rho) * x + rho * inpainted
    return inpainted if mask is None or kind == "none" else masked_shortcut(x, inpainted, mask)


class NeighbourAttention(nn.Module):
    """Attention of each position's feature (the query) to the eight memory reads around it.

    A neighbour beyond the border counts as a zero vector: its key and value are the projection's
    biases.
    """

    neighbours: Tensor

    def __init__(self, width: int, grid: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        # Xavier initialisation as if query, key and value were one matrix, as torch's layer has it.
        for projection in (self.query, self.key_value):
            nn.init.uniform_(projection.weight, -((1.5 / width) ** 0.5), (1.5 / width) ** 0.5)
        for projection in (self.query, self.key_value, self.out):
            nn.init.zeros_(projection.bias)
        self.register_buffer("neighbours", neighbour_index(grid), persistent=False)

    def forward(self, features: Tensor, found: Tensor) -> Tensor:
        """(b, p, d), (b, p, d) -> (b, p, d)."""
        query = rearrange(self.query(features), "b p (a d) -> b p a d", a=self.heads)
        # Keys and values are projected once per position and then gathered by its neighbours.
        pairs = self.key_value(found)  # (b, p, 2d)
        missing = self.key_value.bias.to(pairs.dtype).expand(pairs.shape[0], 1, -1)
        # Index `p` of `neighbours` picks the row that was appended for what lies beyond the border.
        pairs = torch.cat((pairs, missing), 1)[:, self.neighbours]  # (b, p, 8, 2d)
        key, value = rearrange(pairs, "b p n (two a d) -> two b p n a d", two=2, a=self.heads)
        similarity = torch.einsum("bpad,bpnad->bpan", query, key) * query.shape[-1] ** -0.5
        weights = similarity.softmax(-1).to(value.dtype)  # (b, p, a, n)
        mixed = torch.einsum("bpan,bpnad->bpad", weights, value)
        out: Tensor = self.out(rearrange(mixed, "b p a d -> b p (a d)"))
        return out


def neighbour_index(grid: int) -> Tensor:
    """(p, 8): the positions around each position, row by row; `p`, one past the last, stands for
    one beyond the border."""
    # The 3 x 3 neighbourhoods of a grid with a border of `p`, without their centres.
    positions = F.pad(torch.arange(grid**2).view(grid, grid), (1, 1, 1, 1), value=grid**2)
    around = positions.unfold(0, 3, 1).unfold(1, 3, 1).reshape(grid**2, 9)
    return around[:, [0, 1, 2, 3, 5, 6, 7, 8]]


class NeighbourConvolution(nn.Module):
    """The ablation of appendix B: a 3x3 convolution over the grid of positions instead of
    attention."""

    def __init__(self, width: int, grid: int) -> None:
        super().__init__()
        self.grid = grid
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, features: Tensor, found: Tensor) -> Tensor:
        """(b, p, d), (b, p, d) -> (b, p, d)."""
        grid = rearrange(features + found, "b (i j) d -> b d i j", i=self.grid)
        mixed: Tensor = rearrange(self.conv(grid), "b d i j -> b (i j) d")
        return mixed


class NeighbourLayer(nn.Module):
    """Features (b, p, d) and their memory reads (b, p, d) -> in-painted tokens (b, p, d).

    The authors' layer adds the position's own memory read, not its feature, and normalises the
    branches; `standard` is the layer of Vaswani et al. with the feature as residual.
    """

    def __init__(self, width: int, grid: int, *, heads: int, layer: Layer) -> None:
        super().__init__()
        self.standard = layer == "standard"
        # Vaswani et al. widen the hidden layer four times; the authors narrow it to a quarter.
        hidden = 4 * width if self.standard else width // 4
        self.mix = (
            NeighbourConvolution(width, grid)
            if layer == "convolution"
            else NeighbourAttention(width, grid, heads)
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )

    def forward(self, features: Tensor, found: Tensor) -> Tensor:
        mixed = self.mix(features, found)
        if self.standard:
            x: Tensor = self.norm1(features + mixed)
            x = self.norm2(x + self.feed_forward(x))
            return x
        x = F.relu(self.norm1(mixed) + found)
        return F.relu(self.norm2(self.feed_forward(x)) + x)


class InpaintingBlock(nn.Module):
    """Replaces the feature of each patch by what the memory holds of normal patches at its position
    and around it."""

    location: Tensor

    def __init__(
        self,
        channels: int,
        memory: Memory,
        *,
        grid: int,
        side: int,
        layer: Layer = "transformer",
        heads: int = 8,
        location_code: bool = True,
    ) -> None:
        """`side` is that of the map; a token of the memory has `channels // 4 * side**2` values."""
        super().__init__()
        self.grid, self.side = grid, side
        inner = channels // 4
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), BatchNorm(inner), nn.ReLU()
        )
        self.memory = memory
        self.layer = (
            None
            if layer == "none"
            else NeighbourLayer(inner * side**2, grid, heads=heads, layer=layer)
        )
        # Without a code its maps have no channels, so that `expand` needs no other case.
        code = binary_code(grid**2) if location_code else torch.zeros(grid**2, 0)
        self.register_buffer("location", code, persistent=False)
        self.expand = nn.Sequential(
            nn.Conv2d(inner + code.shape[1], channels, 1), BatchNorm(channels), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(b*p, c, h, w) -> (b*p, c, h, w), without a shortcut."""
        features = self.features(x)
        found = self.memory(features)
        tokens = found if self.layer is None else self.layer(features, found)
        inpainted: Tensor = self.expand(self._with_location(tokens))
        return inpainted

    def features(self, x: Tensor) -> Tensor:
        """(b*p, c, h, w) -> the tokens (b, p, d) that read the memory and that it stores."""
        tokens: Tensor = rearrange(self.reduce(x), "(b p) c h w -> b p (c h w)", p=self.grid**2)
        return tokens

    def _with_location(self, tokens: Tensor) -> Tensor:
        maps = rearrange(tokens, "b p (c h w) -> (b p) c h w", h=self.side, w=self.side)
        shape = {"b": tokens.shape[0], "h": self.side, "w": self.side}
        code = repeat(self.location, "p c -> (b p) c h w", **shape)
        return torch.cat((maps, code.to(maps.dtype)), 1)


def binary_code(count: int) -> Tensor:
    """(count, bits): the binary digits of 0 ... count - 1, the highest first."""
    bits = torch.arange(count.bit_length()).flip(0)
    return (torch.arange(count)[:, None] >> bits & 1).float()
