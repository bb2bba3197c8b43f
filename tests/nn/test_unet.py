"""The U-Net and its overlap loss."""

import pytest
import torch

from squid.nn.unet import UNet, soft_dice_loss

SIDE = 32


def test_the_network_keeps_the_size_and_sees_all_of_the_image() -> None:
    network = UNet((4, 8, 8)).eval()
    images = torch.rand(2, 1, SIDE, SIDE, requires_grad=True)
    logits = network(images)
    assert logits.shape == images.shape
    (gradient,) = torch.autograd.grad(logits[0, 0, 0, 0], images)
    assert gradient[0].abs().sum() > 0
    assert gradient[1].abs().sum() == 0
    assert 0.01 < logits.sigmoid().mean() < 0.2  # about the share of pixels in lesions


def test_soft_overlap() -> None:
    target = torch.zeros(1, 1, 8, 8)
    target[..., :4] = 1
    sure = 40 * (2 * target - 1)
    assert soft_dice_loss(sure, target).item() == pytest.approx(0)
    assert soft_dice_loss(-sure, target).item() == pytest.approx(1 - 1 / 65)
    empty = torch.zeros_like(target)
    assert soft_dice_loss(torch.full_like(target, -40.0), empty).item() == pytest.approx(0)
