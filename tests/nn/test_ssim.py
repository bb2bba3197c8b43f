"""Structural similarity against its definition, location by location and scale by scale."""

import numpy as np
import pytest
import torch

from squid.nn.ssim import SCALE_WEIGHTS, disagreement, ms_ssim, scales_of, ssim


def pair(size=24):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 1, size, size, generator=generator, dtype=torch.float64)
    noise = torch.rand(3, 1, size, size, generator=generator, dtype=torch.float64)
    return images, 0.7 * images + 0.3 * noise


def window_of(side):
    place = np.arange(side) - (side - 1) / 2
    line = np.exp(-(place**2) / (2 * 1.5**2))
    return np.outer(line, line) / line.sum() ** 2


def direct(a, b, side):
    """Means of luminance x contrast, and of contrast alone, of two arrays (h, w)."""
    weights, whole, contrast = window_of(side), [], []
    for i in range(a.shape[0] - side + 1):
        for j in range(a.shape[1] - side + 1):
            x, y = a[i : i + side, j : j + side], b[i : i + side, j : j + side]
            mx, my = (weights * x).sum(), (weights * y).sum()
            vx, vy = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum()
            covariance = (weights * (x - mx) * (y - my)).sum()
            luminance = (2 * mx * my + 0.01**2) / (mx**2 + my**2 + 0.01**2)
            contrast.append((2 * covariance + 0.03**2) / (vx + vy + 0.03**2))
            whole.append(luminance * contrast[-1])
    return np.mean(whole), np.mean(contrast)


@pytest.mark.parametrize("window", [3, 11])
def test_ssim_is_its_definition(window):
    a, b = pair()
    expected = [direct(x[0].numpy(), y[0].numpy(), window)[0] for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(ssim(a, b, window=window).numpy(), expected, rtol=1e-9)


def test_ms_ssim_is_its_definition():
    a, b = pair(32)
    scales = scales_of(32, 3)
    assert scales == 4
    weights = np.array(SCALE_WEIGHTS[:scales]) / sum(SCALE_WEIGHTS[:scales])
    expected = []
    for x, y in zip(a[:, 0].numpy(), b[:, 0].numpy(), strict=True):
        product = 1.0
        for scale, weight in enumerate(weights):
            whole, contrast = direct(x, y, 3)
            product *= (whole if scale == scales - 1 else contrast) ** weight
            x, y = (z.reshape(len(z) // 2, 2, -1, 2).mean((1, 3)) for z in (x, y))
        expected.append(product)
    np.testing.assert_allclose(ms_ssim(a, b, window=3).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("size", "window", "scales"),
    [(256, 11, 5), (160, 11, 4), (128, 11, 4), (32, 11, 2), (8, 11, 1)],
)
def test_only_scales_larger_than_the_window_count(size, window, scales):
    assert scales_of(size, window) == scales


@pytest.mark.parametrize("similarity", [ssim, ms_ssim])
def test_equal_images_are_one_and_no_others(similarity):
    a, b = (x.float() for x in pair())
    torch.testing.assert_close(similarity(a, a), torch.ones(3))
    assert (similarity(a, b) < 0.99).all()
    torch.testing.assert_close(similarity(a, b)[1:2], similarity(a[1:2], b[1:2]))


@pytest.mark.parametrize("similarity", [ssim, ms_ssim])
def test_gradients_are_finite_even_for_opposite_images(similarity):
    a = pair()[0].float()
    opposite = (1 - a).requires_grad_()
    (gradient,) = torch.autograd.grad(similarity(a, opposite).sum(), opposite)
    assert gradient.isfinite().all()


def test_half_precision_is_raised():
    a, b = (x.float() for x in pair())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = ssim(a, b)
    assert torch.equal(mixed, ssim(a, b))


def test_disagreement_is_zero_for_the_same_and_one_where_only_one_is_flat():
    image = torch.rand(1, 1, 24, 24)
    flat = torch.zeros_like(image)

    def between(a, b):
        return disagreement(a, b, window=7, smooth=0.5)

    torch.testing.assert_close(between(image, image), flat)
    torch.testing.assert_close(between(flat, flat), flat)
    assert between(image, flat).min() > 0.9
    assert between(image, 1 - image).min() > 1.5


def test_disagreement_ignores_details_that_are_smoothed_away():
    image = torch.rand(1, 1, 24, 24)
    fine = image + 0.2 * (torch.arange(24) % 2 - 0.5)  # stripes of one pixel
    sharp, smooth = (disagreement(image, fine, window=7, smooth=s).mean() for s in (0.1, 1.0))
    assert smooth < sharp / 10
