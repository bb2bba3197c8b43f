"""ResNet18 for gray images, to be trained from scratch."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from squid.nn.conv import BatchNorm


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, a 1x1 convolution where the shape changes."""

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
    """(b, 1, h, w) -> (b, 8 * width, h / 32, w / 32); published with a width of 64."""

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
