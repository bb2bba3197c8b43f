"""Residual blocks that halve and double maps, and the statistics that they use."""

import pytest
import torch
import torch.nn.functional as F

from squid.nn.residual import (
    CodeToMaps,
    ResidualDoublings,
    ResidualDown,
    ResidualHalvings,
    ResidualUp,
    residual_widths,
)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_block_halves_or_doubles(norm):
    x = torch.rand(2, 3, 8, 8)
    assert ResidualDown(3, 5, norm)(x).shape == (2, 5, 4, 4)
    assert ResidualUp(3, 5, norm)(x).shape == (2, 5, 16, 16)


def test_widths_double_up_to_eight_times():
    assert residual_widths(64, 4) == (64, 128, 256, 512, 512)
    assert residual_widths(64, 5) == (64, 128, 256, 512, 512, 512)


def test_the_shortcut_is_a_convolution_of_the_resampled_map():
    """Whichever of the two comes first."""
    x = torch.rand(2, 3, 8, 8)
    down, up = ResidualDown(3, 5, "layer"), ResidualUp(3, 5, "layer")
    for block in (down, up):
        torch.nn.init.zeros_(block.second.weight)
        torch.nn.init.zeros_(block.second.bias)
    torch.testing.assert_close(down(x), F.avg_pool2d(down.shortcut(x), 2))
    doubled = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(up(x), up.shortcut(doubled))


def test_layer_normalisation_treats_each_image_alone():
    network = ResidualHalvings(4, 2, "layer").train()
    images = torch.rand(3, 4, 16, 16)
    together = network(images)
    assert together.shape == (3, network.outputs, 4, 4)
    alone = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(together, alone)


def test_statistics_can_be_the_tracked_ones_in_training_too():
    network = ResidualDoublings(2, 2).train()
    maps = torch.rand(3, network.inputs, 4, 4)
    network(maps)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    tracked = network(maps, "running")
    assert tracked.shape == (3, 2, 16, 16)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert torch.equal(tracked, network.eval()(maps))


def test_branches_keep_the_variance():
    """Otherwise activations would vanish or explode with depth."""
    torch.manual_seed(0)
    block = ResidualDown(32, 32, "batch")
    branch = block.second(block.middle(block.first(block.enter(torch.randn(8, 32, 16, 16)))))
    assert 0.6 < branch.std() < 1.5


def test_a_code_becomes_maps():
    assert CodeToMaps(7, 5, 3)(torch.rand(2, 7)).shape == (2, 5, 3, 3)
