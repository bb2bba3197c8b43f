"""MemAE's reading and the mirrored shapes."""

import pytest
import torch
from torch.testing import assert_close

from squid.nn.autoencoder import (
    MemoryAutoEncoder,
    doublings,
    halvings,
    mean_entropy,
    shrink_to_some,
    to_signed,
    to_unit,
)


def test_weights_below_the_threshold_are_dropped_and_the_rest_sums_to_one():
    weights = shrink_to_some(torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), threshold=0.2)
    assert_close(weights, torch.tensor([0.625, 0.375, 0.0, 0.0]))


def test_a_threshold_above_all_weights_keeps_the_most_similar_slot():
    weights = shrink_to_some(torch.tensor([0.4, 0.35, 0.25]).log(), threshold=0.9)
    assert_close(weights, torch.tensor([1.0, 0.0, 0.0]))


def test_entropy_is_zero_for_one_slot_and_greatest_for_all():
    one, all_four = torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.full((1, 4), 0.25)
    assert_close(mean_entropy(one), torch.tensor(0.0))
    assert_close(mean_entropy(all_four), torch.tensor(4.0).log())


def test_the_decoder_sees_slots_only():
    torch.manual_seed(0)
    network = MemoryAutoEncoder((4, 8), slots=1, threshold=0.1).eval()
    drawing, weights = network(torch.randn(2, 1, 8, 8))
    assert_close(drawing[0], drawing[1])
    assert_close(weights, torch.ones(2, 4, 1))


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
