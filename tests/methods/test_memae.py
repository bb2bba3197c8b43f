"""What only MemAE has: sparse reads of a memory."""

import torch
from torch.testing import assert_close

from squid.methods.memae import MemAE, MemAEConfig, MemoryAutoEncoder, mean_entropy, shrink_to_some


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
    reconstruction, weights = network(torch.randn(2, 1, 8, 8))
    assert_close(reconstruction[0], reconstruction[1])
    assert_close(weights, torch.ones(2, 4, 1))


def test_an_image_may_ask_once():
    torch.manual_seed(0)
    config = MemAEConfig(size=16, channels=(4, 8), query="image", hidden=8, code=3, slots=2)
    method, images = MemAE(config).eval(), torch.rand(5, 1, 16, 16)
    reconstruction, weights = method.network(images)
    assert reconstruction.shape == images.shape
    assert weights.shape == (5, 1, 2)
    # With a threshold above all weights each image is one of two pictures.
    method.network.threshold = 0.9
    pictures = {tuple(one.flatten().tolist()) for one in method.reconstruct(images)}
    assert len(pictures) <= 2
    assert method.score(images).shape == (5,)
