"""Auto-encoders: halving convolutions and their mirror image, with a dense bottleneck between or
with a memory of slots (MemAE)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from einops.layers.torch import Rearrange
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, at_least_float32
from squid.nn.memory import TINY, hard_shrink


def to_signed(images: Tensor) -> Tensor:
    """[0, 1] -> [-1, 1], the range in which these networks see and draw."""
    return 2.0 * images - 1.0


def to_unit(signed: Tensor) -> Tensor:
    """[-1, 1] -> [0, 1]."""
    return (signed + 1.0) / 2.0


def halvings(channels: Sequence[int], *, kernel: int, slope: float) -> nn.Sequential:
    """Strided convolutions from one channel through `channels`, each of which halves the map."""
    levels: list[nn.Module] = []
    for inputs, outputs in pairwise((1, *channels)):
        convolution = nn.Conv2d(inputs, outputs, kernel, stride=2, padding=1)
        levels += [convolution, BatchNorm(outputs), nn.LeakyReLU(slope)]
    return nn.Sequential(*levels)


def doublings(channels: Sequence[int], *, kernel: int, slope: float) -> nn.Sequential:
    """The mirror image of `halvings`; what it draws is unbounded."""
    levels: list[nn.Module] = []
    for inputs, outputs in pairwise((*channels[::-1], 1)):
        odd = kernel % 2  # an odd kernel alone would fall one pixel short of doubling
        levels += [
            nn.ConvTranspose2d(inputs, outputs, kernel, 2, padding=1, output_padding=odd),
            BatchNorm(outputs),
            nn.LeakyReLU(slope),
        ]
    return nn.Sequential(*levels[:-2])


class DenseEncoder(nn.Module):
    """An image as a vector: halving convolutions, then one hidden layer."""

    def __init__(self, size: int, channels: Sequence[int], hidden: int, outputs: int) -> None:
        super().__init__()
        side = size // 2 ** len(channels)
        self.convolutions = halvings(channels, kernel=4, slope=0.0)
        self.dense = nn.Sequential(
            nn.Flatten(),
            *_hidden_layer(channels[-1] * side**2, hidden),
            nn.Linear(hidden, outputs),
        )

    def forward(self, signed: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, outputs)."""
        vector: Tensor = self.dense(self.convolutions(signed))
        return vector


class DenseDecoder(nn.Module):
    """The mirror image of `DenseEncoder`."""

    def __init__(self, size: int, channels: Sequence[int], hidden: int, inputs: int) -> None:
        super().__init__()
        side = size // 2 ** len(channels)
        self.dense = nn.Sequential(
            *_hidden_layer(inputs, hidden),
            nn.Linear(hidden, channels[-1] * side**2),
            Rearrange("b (c h w) -> b c h w", h=side, w=side),
        )
        self.convolutions = doublings(channels, kernel=4, slope=0.0)

    def forward(self, vector: Tensor) -> Tensor:
        """(b, inputs) -> (b, 1, h, w)."""
        signed: Tensor = self.convolutions(self.dense(vector))
        return signed


def _hidden_layer(inputs: int, outputs: int) -> list[nn.Module]:
    """Linear, batch normalisation (over a map of one cell), ReLU."""
    as_map, as_vector = nn.Unflatten(1, (outputs, 1, 1)), nn.Flatten()
    return [nn.Linear(inputs, outputs), as_map, BatchNorm(outputs), nn.ReLU(), as_vector]


def shrink_to_some(similarity: Tensor, threshold: float) -> Tensor:
    """MemAE's sparse weights: the softmax where it is above the threshold, summing to one.

    The most similar slot always stays: a threshold above every weight would leave none.
    """
    soft = similarity.softmax(-1)
    best = soft.amax(-1, keepdim=True)
    return F.normalize(torch.where(soft < best, hard_shrink(soft, threshold), soft), p=1, dim=-1)


def mean_entropy(weights: Tensor) -> Tensor:
    """Of rows (..., n) that sum to one."""
    return -(weights * (weights + TINY).log()).sum(-1).mean()


class MemoryAutoEncoder(nn.Module):
    """MemAE: the decoder sees nothing but slots of a learned memory, chosen for each cell of the
    bottleneck."""

    def __init__(self, channels: Sequence[int], *, slots: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.encoder = halvings(channels, kernel=3, slope=0.2)
        bound = channels[-1] ** -0.5
        self.slots = nn.Parameter(torch.empty(slots, channels[-1]).uniform_(-bound, bound))
        self.decoder = doublings(channels, kernel=3, slope=0.2)

    def forward(self, signed: Tensor) -> tuple[Tensor, Tensor]:
        """(b, 1, h, w) -> the drawing (b, 1, h, w), and the weights of the slots (b, cells, n)."""
        bottleneck = self.encoder(signed)  # (b, d, h, w)
        tokens = rearrange(bottleneck, "b d h w -> b (h w) d")
        with torch.autocast(tokens.device.type, enabled=False):  # ranking slots needs precision
            slots = at_least_float32(self.slots)  # (n, d)
            similarity = torch.einsum("btd,nd->btn", at_least_float32(tokens), slots)
            weights = shrink_to_some(similarity, self.threshold)
            found = (weights @ slots).to(bottleneck.dtype)  # (b, t, d)
        found = rearrange(found, "b (h w) d -> b d h w", h=bottleneck.shape[2])
        return self.decoder(found), weights
