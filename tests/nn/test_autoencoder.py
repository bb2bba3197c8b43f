"""Mirrored shapes and ranges."""

import pytest
import torch
from torch.testing import assert_close

from squid.nn.autoencoder import doublings, halvings, to_signed, to_unit


@pytest.mark.parametrize("kernel", [3, 4])
def test_doublings_mirror_halvings(kernel):
    images = torch.rand(2, 1, 16, 16)
    bottleneck = halvings((4, 6), kernel=kernel, slope=0.2)(images)
    assert bottleneck.shape == (2, 6, 4, 4)
    assert doublings((4, 6), kernel=kernel, slope=0.2)(bottleneck).shape == images.shape


def test_ranges_are_inverse():
    images = torch.rand(3, 3)
    assert_close(to_unit(to_signed(images)), images)
    assert to_signed(torch.tensor([0.0, 1.0])).tolist() == [-1.0, 1.0]
