"""ResNet18."""

import torch

from squid.nn.resnet import ResNet18


def test_it_has_the_published_size() -> None:
    """11,176,512 parameters with a coloured stem; this one is gray."""
    network = ResNet18()
    assert sum(p.numel() for p in network.parameters()) == 11_176_512 - 2 * 64 * 49
    assert network.channels == 512


def test_maps_are_a_thirty_second_of_the_image() -> None:
    assert ResNet18(width=2)(torch.rand(2, 1, 64, 96)).shape == (2, 16, 2, 3)
