"""The losses of SQUID's generators and discriminator."""

import math

import torch
import torch.nn.functional as F

from squid.methods.squid.losses import distillation, fooling
from squid.nn.discriminator import real_or_fake


def test_adversarial_losses_are_cross_entropies():
    real, fake = torch.randn(5), torch.randn(5)
    ones, zeros = torch.ones(5), torch.zeros(5)
    expected = F.binary_cross_entropy_with_logits(real, ones)
    expected = expected + F.binary_cross_entropy_with_logits(fake, zeros)
    torch.testing.assert_close(real_or_fake(real, fake), expected)
    expected = F.binary_cross_entropy_with_logits(fake, ones)
    torch.testing.assert_close(fooling(fake, "non_saturating"), expected)


def test_the_saturating_loss_is_log_of_one_minus_d():
    logits = torch.tensor([0.0, 2.0])
    expected = (1 - logits.sigmoid()).log().mean()
    torch.testing.assert_close(fooling(logits, "saturating"), expected)
    assert math.isfinite(fooling(torch.tensor([80.0]), "saturating"))


def test_distillation_moves_the_learner_only():
    for learner, student_learns, teacher_learns in [
        ("both", True, True),
        ("student", True, False),
        ("teacher", False, True),
    ]:
        ours, theirs = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
        distillation([ours], [theirs], learner=learner).backward()
        assert (ours.grad is not None) == student_learns
        assert (theirs.grad is not None) == teacher_learns


def test_distillation_sums_levels():
    zeros = [torch.zeros(8, 2, 1, 1), torch.zeros(2, 3, 2, 2)]  # patches of two images, the images
    ones = [torch.ones_like(x) for x in zeros]
    assert distillation(zeros, ones) == 2
    assert distillation(zeros, ones, reduction="sum") == (16 + 24) / 2
