"""What only IGD has: a centre that is pushed off zero, a width, and a critic of interpolations."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from squid.methods.base import Batch
from squid.methods.igd import Igd, IgdConfig


def small(**settings):
    torch.manual_seed(0)
    method = Igd(IgdConfig(size=32, width=4, code=6, **settings))
    method.backbone = _Pooling(method.backbone.channels)
    return method


class _Pooling(nn.Module):
    """A stand-in for the backbone: quick, with one weight."""

    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, images):
        maps = nn.functional.avg_pool2d(images, 8).flatten(1)[:, :, None, None]
        return [self.gain * maps.repeat(1, self.channels[-1] // maps.shape[1], 1, 1)]


def draw_batch(b=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(b, 1, 32, 32, generator=generator)
    return Batch(images, torch.arange(b), {"between": torch.rand(b, 1, generator=generator)})


def estimate(method, batches):
    (stage,) = method.stages()
    with torch.no_grad():
        stage.prepare(iter(batches))


def test_no_entry_of_the_centre_is_near_zero():
    method = small()
    with torch.no_grad():
        method.linear.weight.zero_()
        method.linear.bias.copy_(torch.tensor([0.5, 0.05, 0.0, -0.05, -0.5, 0.1]))
    estimate(method, [draw_batch()])
    expected = torch.tensor([0.5, 0.1, 0.1, -0.1, -0.5, 0.1])
    torch.testing.assert_close(method.centre, expected)


@pytest.mark.parametrize("gain", [1.0, 1000.0])
def test_the_width_is_the_mean_over_batches_of_at_least_one(gain):
    method = small()
    with torch.no_grad():
        method.linear.weight.mul_(gain)
    batches = [draw_batch(4, seed=1), draw_batch(2, seed=2)]
    estimate(method, batches)
    with torch.no_grad():
        codes = [method._encode(batch.images) for batch in batches]
    distances = [(code - method.centre).square().sum(1).mean() for code in codes]
    expected = torch.stack([distance.clamp(min=1) for distance in distances]).mean()
    torch.testing.assert_close(method.variance, expected)
    assert (expected == 1) == (gain == 1)


def test_centre_and_width_are_estimated_again_every_ten_epochs():
    (stage,) = small().stages()
    assert stage.every_epochs == 10


def test_the_gaussian_score_grows_from_zero_at_the_centre_and_never_ties():
    method = small()
    direction = torch.ones(6) / 6**0.5
    steps = torch.tensor([0.0, 1.0, 4.5, 5.5], dtype=torch.float64)
    codes = method.centre + steps[:, None] * direction
    scores = method._gaussian_score(codes)
    torch.testing.assert_close(scores, 1 - torch.exp(-steps.square()), check_dtype=False)
    assert (scores.diff() > 0).all()


def test_the_critic_learns_how_much_of_another_image_is_in_it():
    method = small()
    batch, (stage,) = draw_batch(), method.stages()
    generator, critic = stage.objectives
    shared = stage.shared(batch, frozenset())
    assert (shared["between"] <= 0.5).all()
    method.critic.forward = lambda images: shared["between"].squeeze(1)
    terms = critic.loss(batch, shared)
    assert terms["interpolation"] == 0
    expected = shared["between"].square().mean()
    torch.testing.assert_close(terms["real"], expected)
    fooled = generator.loss(batch, shared)["critic"]
    torch.testing.assert_close(fooled, 0.1 * expected)


def test_codes_are_mixed_with_those_of_the_flipped_batch():
    method = small().eval()
    batch, (stage,) = draw_batch(), method.stages()
    own = stage.shared(replace(batch, noise={"between": torch.full((4, 1), 2.0)}), frozenset())
    other = stage.shared(replace(batch, noise={"between": torch.zeros(4, 1)}), frozenset())
    torch.testing.assert_close(own["interpolation"], own["reconstruction"])
    torch.testing.assert_close(other["interpolation"], other["reconstruction"].flip(0))


@pytest.mark.parametrize("learns", [False, True])
def test_the_backbone_learns_only_when_asked(learns):
    method = small(train_backbone=learns)
    batch, (stage,) = draw_batch(), method.stages()
    listed = {id(p) for p in stage.objectives[0].parameters}
    assert (id(method.backbone.gain) in listed) == learns
    shared = stage.shared(batch, frozenset())
    (gradient,) = torch.autograd.grad(
        shared["code"].sum(), [method.backbone.gain], allow_unused=True
    )
    assert (gradient is not None) == learns


def test_the_score_weighs_reconstruction_error_and_gaussian():
    method = small().eval()
    images = draw_batch().images
    with torch.no_grad():
        code = method._encode(images)
        error = method._error(images, method.decoder(code))
        expected = 0.1 * error + 0.9 * method._gaussian_score(code)
        torch.testing.assert_close(method.score(images), expected, check_dtype=False)


@pytest.mark.parametrize(("size", "blocks"), [(256, 4), (128, 3), (96, 3), (48, 2), (32, 1)])
def test_pyramids_fit_the_size(size, blocks):
    with torch.device("meta"):
        method = Igd(IgdConfig(size=size))
    assert len(method.decoder.doublings.levels) == len(method.critic.halvings.levels) == blocks
    images = method.decoder(torch.empty(2, 128, device="meta"))
    assert images.shape == (2, 1, size, size)
    assert method.critic(images).shape == (2,)
