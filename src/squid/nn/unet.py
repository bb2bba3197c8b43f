"""A U-Net for segmentation and its overlap loss."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm, conv3x3, to_one_channel, upsample2


class UNet(nn.Module):
    """(b, inputs, h, w) -> logits (b, 1, h, w), at least float32 (Ronneberger et al., MICCAI
    2015)."""

    def __init__(self, channels: tuple[int, ...], *, inputs: int = 1) -> None:
        super().__init__()
        self.down = nn.ModuleList(_level(*pair) for pair in pairwise((inputs, *channels)))
        levels = list(pairwise(channels))[::-1]
        self.up = nn.ModuleList(_level(above + below, above) for above, below in levels)
        self.out = nn.Conv2d(channels[0], 1, 1)
        # Lesions cover a twentieth of the pixels. Beginning with that share instead of a half
        # saves the hundreds of steps in which the bias would have to learn it.
        assert self.out.bias is not None
        nn.init.constant_(self.out.bias, -3.0)

    def forward(self, x: Tensor) -> Tensor:
        # The deepest map is no skip; the others join the way up in reverse order.
        skips: list[Tensor] = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        for level, skip in zip(self.up, skips[-2::-1], strict=True):
            x = level(torch.cat((skip, upsample2(x)), 1))
        return to_one_channel(self.out, x)


def _level(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions with batch normalisation."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, outputs, outputs)):
        layers += [conv3x3(before, after, bias=False), BatchNorm(after), nn.ReLU()]
    return nn.Sequential(*layers)


def soft_dice_loss(logits: Tensor, target: Tensor) -> Tensor:
    """One minus the soft Dice overlap of target and segmentation (Milletari et al., 3DV 2016), the
    mean over images. One pixel is added to both, so that images without a lesion are defined."""
    found = logits.sigmoid()
    overlap = 2 * (found * target).sum((1, 2, 3)) + 1
    return 1 - (overlap / (found.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()
