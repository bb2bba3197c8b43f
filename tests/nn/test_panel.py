"""Discriminators that judge together."""

import pytest
import torch

from squid.nn.discriminator import Discriminator
from squid.nn.panel import Panel

SIZE, WIDTH, JUDGES = 16, 2, 2


def course(steps):
    """The states of a discriminator along a training."""
    return [Discriminator(SIZE, WIDTH, JUDGES) for _ in range(steps)]


def images(b=5):
    return torch.rand(b, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_the_last_ones_judge_in_units_of_their_spread(steps):
    panel, seen = Panel(SIZE, WIDTH, JUDGES, sittings=3), course(steps)
    for discriminator in seen:
        panel.keep(discriminator)
    panel.fit(panel.logits(images(20), "image"))
    doubts = []
    for discriminator in seen[-3:]:
        spread, mean = torch.std_mean(discriminator(images(20), "image"), 0, correction=0)
        doubts.append(-(discriminator(images(), "image") - mean) / spread)
    expected = torch.cat(doubts, 1).mean(1)
    torch.testing.assert_close(panel(images(), "image"), expected, rtol=1e-4, atol=1e-4)


def test_nothing_in_it_learns():
    panel = Panel(SIZE, WIDTH, JUDGES, sittings=3)
    (kept,) = course(1)
    panel.keep(kept)
    assert not any(parameter.requires_grad for parameter in panel.parameters())
    with torch.no_grad():
        kept.head.bias.add_(1.0)
    assert not torch.equal(panel.discriminators[0].head.bias, kept.head.bias)


def test_an_empty_panel_says_nothing():
    assert torch.equal(Panel(SIZE, WIDTH, JUDGES, 3)(images(), "image"), torch.zeros(5))
