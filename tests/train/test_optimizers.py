"""Schedules against their formulas, and optimisers that go on from a saved state."""

import copy
import math

import pytest
import torch

from squid.methods.base import OptimizerConfig
from squid.train.optimizers import build_optimizer, rate, restore_optimizer, set_rate


def test_the_authors_cosine_is_cut_at_two_thirds():
    config = OptimizerConfig(lr=1e-4, final_lr=1e-5, schedule="cosine", period=300)
    assert rate(config, 0, 200) == pytest.approx(1e-4)
    assert rate(config, 200, 200) == pytest.approx(3.25e-5)
    assert rate(config, 300, 200) == pytest.approx(1e-5)


def test_a_cosine_without_a_period_ends_with_the_stage():
    config = OptimizerConfig(lr=1e-4, final_lr=2e-5, schedule="cosine")
    assert rate(config, 50, 100) == pytest.approx(6e-5)
    assert rate(config, 100, 100) == pytest.approx(2e-5)


def test_halving_halves_at_the_end_of_each_period():
    config = OptimizerConfig(lr=1.0, schedule="halving", period=10)
    assert [rate(config, t, 100) for t in (0, 9, 10, 19, 20, 35)] == [1, 1, 0.5, 0.5, 0.25, 0.125]


def test_poly_falls_to_zero():
    config = OptimizerConfig(lr=2.0, schedule="poly")
    assert rate(config, 0, 10) == 2.0
    assert rate(config, 5, 10) == pytest.approx(2.0 * 0.5**0.9)
    assert rate(config, 10, 10) == 0.0


def test_constant_stays():
    assert {rate(OptimizerConfig(lr=3e-4), t, 10) for t in range(11)} == {3e-4}


def parameter():
    return torch.nn.Parameter(torch.tensor([1.0, -2.0]))


def step(optimizer, weights, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        weights.square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["adam", "sgd", "rmsprop"])
def test_a_restored_optimizer_goes_on_as_the_first(kind):
    config = OptimizerConfig(kind=kind, lr=0.1, momentum=0.5)
    first, second = parameter(), parameter()
    one = build_optimizer(config, [first], capturable=False)
    step(one, first, 3)
    two = build_optimizer(config, [second], capturable=False)
    restore_optimizer(two, copy.deepcopy(one.state_dict()))
    second.data.copy_(first.data)
    step(one, first)
    step(two, second)
    assert torch.equal(first, second)


def test_a_restored_optimizer_keeps_its_own_rate_and_flags():
    weights = parameter()
    other = build_optimizer(OptimizerConfig(lr=0.1), [weights], capturable=False)
    step(other, weights)
    saved = other.state_dict()
    saved["param_groups"][0] |= {"capturable": True, "fused": True, "lr": torch.tensor(0.1)}
    optimizer = build_optimizer(OptimizerConfig(lr=0.02), [weights], capturable=False)
    restore_optimizer(optimizer, saved)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["capturable"], group["fused"]) == (0.02, False, False)
    step(optimizer, weights)


def test_a_rate_on_the_device_is_set_in_place():
    optimizer = torch.optim.SGD([parameter()], lr=torch.tensor(0.1))
    tensor = optimizer.param_groups[0]["lr"]
    set_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert math.isclose(tensor.item(), 0.25)
