"""Auto-encoders: halving convolutions and their mirror image, and a dense bottleneck."""

from collections.abc import Sequence
from itertools import pairwise

from einops.layers.torch import Rearrange
from torch import Tensor, nn

from squid.nn.conv import BatchNorm


def to_signed(images: Tensor) -> Tensor:
    """[0, 1] -> [-1, 1], the range of these networks' inputs and outputs."""
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


def doublings(
    channels: Sequence[int], *, kernel: int, slope: float, maps: int = 1
) -> nn.Sequential:
    """The mirror image of `halvings`, which ends in so many maps; its outputs are unbounded."""
    levels: list[nn.Module] = []
    for inputs, outputs in pairwise((*channels[::-1], maps)):
        odd = kernel % 2  # by itself an odd kernel falls one pixel short of doubling
        levels += [
            nn.ConvTranspose2d(inputs, outputs, kernel, 2, padding=1, output_padding=odd),
            BatchNorm(outputs),
            nn.LeakyReLU(slope),
        ]
    # The last convolution stays bare, so that the output is neither normalised nor rectified.
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
    """The mirror image of `DenseEncoder`, with as many output maps as asked for."""

    def __init__(
        self, size: int, channels: Sequence[int], hidden: int, inputs: int, *, maps: int = 1
    ) -> None:
        super().__init__()
        side = size // 2 ** len(channels)
        self.dense = nn.Sequential(
            *_hidden_layer(inputs, hidden),
            nn.Linear(hidden, channels[-1] * side**2),
            Rearrange("b (c h w) -> b c h w", h=side, w=side),
        )
        self.convolutions = doublings(channels, kernel=4, slope=0.0, maps=maps)

    def forward(self, vector: Tensor) -> Tensor:
        """(b, inputs) -> (b, maps, h, w)."""
        signed: Tensor = self.convolutions(self.dense(vector))
        return signed


def _hidden_layer(inputs: int, outputs: int) -> list[nn.Module]:
    """Linear, batch normalisation (over a map of one cell), ReLU."""
    # `BatchNorm` takes maps only, so the vector passes through it as a map of one cell.
    as_map, as_vector = nn.Unflatten(1, (outputs, 1, 1)), nn.Flatten()
    return [nn.Linear(inputs, outputs), as_map, BatchNorm(outputs), nn.ReLU(), as_vector]
