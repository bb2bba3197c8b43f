"""An implicit field: a network from an image's code and a place to what is there."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Dropout:
    """Units left out, from draws per point (b, n, layers) and per unit (b, layers, width).

    A unit drops where the sum of both draws, modulo one, is below `probability`: any two units of
    any two points drop independently, from draws much smaller than one for each of them.
    """

    def __init__(self, points: Tensor, units: Tensor, probability: float) -> None:
        self._points, self._units, self._probability = points, units, probability

    def __call__(self, x: Tensor, layer: int) -> Tensor:
        """(b, n, width) -> the same, where kept and scaled."""
        draws = (self._points[:, :, layer, None] + self._units[:, None, layer]) % 1.0
        return x * (draws >= self._probability) / (1 - self._probability)


class ImplicitField(nn.Module):
    """Weight-normalised layers that see code and place, once more at `again`."""

    def __init__(
        self, *, code: int, place: int, hidden: int, layers: int, outputs: int, again: int
    ) -> None:
        super().__init__()
        self.again = again
        inputs = code + place
        before = [inputs, *[hidden] * (layers - 1)]
        extra = [inputs if i == again else 0 for i in range(layers)]
        self.layers = nn.ModuleList(
            weight_norm(nn.Linear(a + b, hidden)) for a, b in zip(before, extra, strict=True)
        )
        self.head = nn.Linear(hidden, outputs)

    def forward(self, codes: Tensor, places: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(b, c), (b or 1, n, g) -> (b, n, outputs)."""
        b, n = len(codes), places.shape[1]
        inputs = torch.cat((codes[:, None].expand(b, n, -1), places.expand(b, n, -1)), -1)
        x = inputs
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat((x, inputs), -1) if i == self.again else x))
            x = x if dropout is None else dropout(x, i)
        outputs: Tensor = self.head(x)
        return outputs


def place_encoding(side: int, frequencies: int) -> Tensor:
    """(side * side, 4 * frequencies): sines and cosines of both coordinates, which run from -1 to
    1, at doubling frequencies."""
    line = torch.linspace(-1, 1, side)
    places = torch.cartesian_prod(line, line)  # (h w, 2)
    waves = places[..., None] * torch.pi * 2.0 ** torch.arange(frequencies)
    return torch.cat((waves.sin(), waves.cos()), -1).flatten(1)
