"""What only AE-U has: the predicted variance, its limits, and the error in units of it."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from squid.config import parse
from squid.errors import ConfigError
from squid.methods.ae_u import LEAST_SPREAD, LOG_VARIANCE, AeU, AeUConfig
from squid.methods.base import Batch
from tests.chests import chests


def tiny(log_variance: float | None = None) -> AeU:
    """With a given log-variance everywhere, if there is one."""
    torch.manual_seed(0)
    method = AeU(AeUConfig(size=16, channels=(4, 4), hidden=8, latent=3)).eval()
    last = method.decoder.convolutions[-1]
    assert isinstance(last, nn.ConvTranspose2d)
    if log_variance is not None:
        with torch.no_grad():
            last.weight[:, 1] = 0.0
            last.bias[1] = log_variance
    return method


def test_the_decoder_predicts_two_maps_with_the_published_widths() -> None:
    with torch.device("meta"):
        method = AeU(AeUConfig())
        maps = method.decoder(method.encoder(torch.rand(2, 1, 128, 128)))
    assert maps.shape == (2, 2, 128, 128)
    linear = [(m.in_features, m.out_features) for m in method.modules() if type(m) is nn.Linear]
    assert linear == [(4096, 2048), (2048, 16), (16, 2048), (2048, 4096)]


@pytest.mark.parametrize(("predicted", "used"), [(-50.0, -12.0), (50.0, 6.0), (-2.0, -2.0)])
def test_the_log_variance_is_clamped(predicted: float, used: float) -> None:
    assert min(LOG_VARIANCE) <= used <= max(LOG_VARIANCE)
    method, images = tiny(predicted), torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        mean, log_variance = method._predict(images)
        heatmap = method.heatmap(images)
    assert (log_variance == used).all()
    squared = (2 * images - 1 - mean).square().squeeze(1)
    assert_close(heatmap, squared * math.exp(-used))


def test_the_loss_is_twice_the_negative_log_likelihood() -> None:
    method, images = tiny(), torch.rand(3, 1, 16, 16)
    with torch.no_grad():
        mean, log_variance = method._predict(images)
        terms = method.loss(Batch(images, torch.arange(3), {}), {})
    gaussian = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    likelihood = gaussian.log_prob(2 * images - 1).mean() + 0.5 * math.log(2 * math.pi)
    assert_close(sum(terms.values()), -2 * likelihood)


def test_the_score_is_the_mean_of_the_heatmap_and_the_mean_is_the_reconstruction() -> None:
    method, images = tiny(), torch.rand(3, 1, 16, 16)
    with torch.no_grad():
        assert_close(method.score(images), method.heatmap(images).mean((1, 2)))
        mean = method._predict(images)[0]
        assert_close(method.reconstruct(images), ((mean + 1) / 2).clamp(0, 1))


def test_an_uncertain_pixel_counts_less() -> None:
    images = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        certain, uncertain = tiny(-4.0).score(images), tiny(0.0).score(images)
    assert_close(certain, uncertain * math.exp(4.0))


def test_sizes_that_cannot_be_halved_are_refused() -> None:
    with pytest.raises(ConfigError, match="size 72 must be a multiple of 16"):
        parse(AeUConfig, {"size": 72}, "a recipe")


def smooth(**settings: object) -> AeU:
    """With smoothed residuals, measured on 64 images of noise."""
    torch.manual_seed(0)
    config = {"size": 16, "channels": (4, 4), "hidden": 8, "latent": 3, "smooth": 0.1}
    method = AeU(AeUConfig.model_validate({**config, **settings})).eval()
    images = 0.4 + 0.2 * torch.rand(64, 1, 16, 16)
    with torch.no_grad():
        method.finalize([Batch(part, torch.arange(32), {}) for part in images.split(32)])
    return method


def test_smoothed_residuals_count_in_units_of_their_spread_at_each_pixel() -> None:
    method, images = smooth(), 0.4 + 0.2 * torch.rand(500, 1, 16, 16)
    with torch.no_grad():
        residuals = method._smoothed(images)
        deviation = (residuals - method.residual_mean) / method.residual_spread
        assert_close(method.score(images), deviation.square().mean((1, 2)).log())
        # What is darker than expected counts half.
        assert_close(method.heatmap(images), deviation.clamp_min(0) - deviation.clamp_max(0) / 2)
    # The mean spread of other images of the kind is one, but for the share that is added.
    found = deviation.square().mean().sqrt()
    assert found == pytest.approx(1 / (1 + LEAST_SPREAD), rel=0.1)


def test_a_blob_outweighs_noise_of_as_many_pixels() -> None:
    """Smoothing is there for this: single pixels that differ cancel, and a lesion does not."""
    method, plain = smooth(), tiny()
    usual = torch.full((1, 1, 16, 16), 0.5)
    blob, noise = usual.clone(), usual.clone()
    blob[..., 6:10, 6:10] += 0.2
    scattered = torch.zeros(256)
    scattered[torch.randperm(256, generator=torch.Generator().manual_seed(1))[:16]] = 0.2
    noise += scattered.view(1, 1, 16, 16) * torch.tensor([1.0, -1.0]).repeat(128).view(1, 1, 16, 16)
    with torch.no_grad():
        rise = [
            [float(score(x) - score(usual)) for x in (blob, noise)]
            for score in (lambda x: method.score(x).exp(), plain.score)
        ]
    (smooth_blob, smooth_noise), (plain_blob, plain_noise) = rise
    assert smooth_blob > 3 * abs(smooth_noise)
    assert plain_blob < 3 * abs(plain_noise)


def test_only_brighter_pixels_count_where_that_is_asked_for() -> None:
    both, brighter = smooth(), smooth(brighter=True)
    usual = torch.full((1, 1, 16, 16), 0.5)
    bright, dark = usual.clone(), usual.clone()
    bright[..., 6:10, 6:10] += 0.3
    dark[..., 6:10, 6:10] -= 0.3
    with torch.no_grad():
        twice = math.log(2)
        assert both.score(dark) > both.score(usual) + twice
        assert brighter.score(bright) > brighter.score(usual) + twice
        assert brighter.score(dark) < both.score(dark) - twice
        assert brighter.heatmap(dark).min() >= 0


def test_equal_training_images_leave_a_score_that_is_a_number() -> None:
    method, images = smooth(), torch.full((32, 1, 16, 16), 0.5)
    with torch.no_grad():
        method.finalize([Batch(images, torch.arange(32), {})])
        assert method.score(images).isfinite().all()
        assert method.score(torch.rand(2, 1, 16, 16)).min() > method.score(images).max()


def test_brighter_needs_smoothed_residuals() -> None:
    with pytest.raises(ConfigError, match="brighter needs smoothed residuals"):
        parse(AeUConfig, {"brighter": True}, "a recipe")


def test_the_published_score_keeps_no_residuals() -> None:
    assert "residual_mean" not in tiny().state_dict()


@pytest.mark.parametrize("smooth", [0.0, 0.05])
def test_within_the_lungs_nothing_else_counts(smooth: float) -> None:
    torch.manual_seed(0)
    config = {"size": 32, "channels": (4, 4), "hidden": 8, "latent": 3, "smooth": smooth}
    method = AeU(AeUConfig.model_validate({**config, "region": "lungs"})).eval()
    images = chests(64)
    usual, beside, within = (chests(1) for _ in range(3))
    beside[..., 28:, 12:20] += 0.15
    within[..., 12:20, 8:12] += 0.15
    with torch.no_grad():
        method.finalize([Batch(part, torch.arange(32), {}) for part in images.split(32)])
        score = [float(method.score(one)) for one in (usual, beside, within)]
        heatmap = method.heatmap(within)[0]
    assert abs(score[1] - score[0]) < 0.1 * abs(score[2] - score[0])
    assert heatmap[28:].max() < 0.05 * heatmap.max()
