"""Adam in one pass is torch's Adam."""

import pytest
import torch

from squid.methods.base import OptimizerConfig
from squid.train.adam import FusedAdam
from squid.train.optimizers import build_optimizer, restore_optimizer

SHAPES = [(4, 3, 3, 3), (4,), (2, 5)]


def weights():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    monkeypatch.setattr("squid.train.adam.compile_fused", lambda function: function)


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator).to(torch.bfloat16) for shape in SHAPES]


def pair(decay):
    # With so large an eps, updates show whether it is added before or after the bias correction.
    config = OptimizerConfig(lr=0.01, betas=(0.5, 0.9), eps=0.1, weight_decay=decay)
    ours, theirs = weights(), weights()
    fused_adam = build_optimizer(config, ours, capturable=False, fused_adam=True)
    plain = build_optimizer(config, theirs, capturable=False)
    return fused_adam, ours, plain, theirs


def take(fused_adam, ours, plain, theirs, steps):
    copies = [ours[0].detach().to(torch.bfloat16), None, None]
    for step in steps:
        found = gradients(step)
        fused_adam.step_from(found, copies)
        for parameter, gradient in zip(theirs, found, strict=True):
            parameter.grad = gradient.float()
        plain.step()
    return copies


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_updates_are_torchs(decay):
    fused_adam, ours, plain, theirs = pair(decay)
    copies = take(fused_adam, ours, plain, theirs, range(5))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(copies[0], ours[0].to(torch.bfloat16))


def test_state_goes_from_one_to_the_other_and_back():
    fused_adam, ours, plain, theirs = pair(0.1)
    take(fused_adam, ours, plain, theirs, range(3))
    first, second = fused_adam.state_dict(), plain.state_dict()
    restore_optimizer(fused_adam, second)
    restore_optimizer(plain, first)
    take(fused_adam, ours, plain, theirs, range(3, 6))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_only_a_plain_adam_can_be_done_in_one_pass():
    for config in (OptimizerConfig(kind="sgd"), OptimizerConfig(clip=1.0)):
        assert not isinstance(
            build_optimizer(config, weights(), capturable=False, fused_adam=True), FusedAdam
        )
