"""Preprocessing removes what it should and treats each image on its own."""

import pytest
import torch

from squid.nn.preprocess import STEPS, equalise, flatten_spectrum, min_max, preprocess, standardise


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(5, 1, 8, 8, generator=generator)
    return torch.nn.functional.interpolate(smooth, (32, 32), mode="bicubic").clamp(0, 1)


@pytest.mark.parametrize("step", STEPS)
def test_images_stay_in_range_and_do_not_depend_on_their_batch(step, images):
    together = STEPS[step](images)
    assert together.shape == images.shape
    assert together.min() >= 0
    assert together.max() <= 1
    for i in range(len(images)):
        torch.testing.assert_close(STEPS[step](images[i : i + 1]), together[i : i + 1])


def test_equalised_images_know_no_exposure(images):
    levels = (images * 255).round() / 255
    darker = (levels * 255).round().div(2).floor() / 255  # monotone, so ranks stay but for ties
    torch.testing.assert_close(equalise(levels), equalise(darker), atol=0.02, rtol=0)
    assert (equalise(images).mean((1, 2, 3)) - 0.5).abs().max() < 1e-3


def test_standardised_images_know_no_brightness_and_contrast(images):
    torch.testing.assert_close(standardise(images), standardise(0.3 + 0.2 * images))


def test_min_max_fills_the_range_of_each_image(images):
    stretched = min_max(0.3 + 0.2 * images)
    assert stretched.amin((1, 2, 3)).eq(0).all()
    torch.testing.assert_close(stretched.amax((1, 2, 3)), torch.ones(len(images)))
    torch.testing.assert_close(stretched, min_max(images))


def test_a_constant_image_is_no_division_by_zero():
    constant = torch.full((1, 1, 16, 16), 0.5)
    for step in STEPS.values():
        assert step(constant).isfinite().all()


def test_blur_is_undone_in_the_spectrum(images):
    spectrum = torch.fft.rfft2(images)
    down = torch.fft.fftfreq(32)[:, None]
    blurred = torch.fft.irfft2(spectrum * torch.exp(-20 * (down**2 + torch.fft.rfftfreq(32) ** 2)))
    before = (blurred - images).abs().mean()
    after = (flatten_spectrum(blurred) - flatten_spectrum(images)).abs().mean()
    assert after < before / 5


def test_steps_follow_one_another(images):
    both = preprocess(images, ["standardise", "equalise"])
    assert torch.equal(both, equalise(standardise(images)))
    assert torch.equal(preprocess(images, []), images)
