"""Structural similarity of gray images (Wang et al. 2004), at one scale and at several (2003)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from squid.nn.blur import gaussian_blur
from squid.nn.conv import at_least_float32

SIGMA = 1.5
"""Standard deviation of the Gaussian window, in pixels."""
LUMINANCE, CONTRAST = 0.01**2, 0.03**2
"""Constants that keep the quotients finite, for pixels in [0, 1]."""
SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weight of each scale, finest first."""


def ssim(images: Tensor, others: Tensor, *, window: int = 11) -> Tensor:
    """(b, 1, h, w) twice, in [0, 1] -> (b,): 1 for equal images."""
    luminance, contrast = _similarities(images, others, window)
    return (luminance * contrast).mean((1, 2))


def ms_ssim(images: Tensor, others: Tensor, *, window: int = 11) -> Tensor:
    """(b, 1, h, w) twice, in [0, 1] -> (b,). Scales smaller than the window are left out, and the
    weights of the others are scaled to sum to one."""
    scales = scales_of(min(images.shape[-2:]), window)
    total = sum(SCALE_WEIGHTS[:scales])
    product = torch.ones_like(images[:, 0, 0, 0])
    for scale, weight in enumerate(SCALE_WEIGHTS[:scales]):
        luminance, similarity = _similarities(images, others, window)
        # Luminance counts at the coarsest scale only, as Wang et al. define it.
        if scale == scales - 1:
            similarity = luminance * similarity
        mean = similarity.mean((1, 2)).clamp_min(
            1e-6
        )  # a power of a negative number is not defined
        product = product * mean ** (weight / total)
        images, others = F.avg_pool2d(images, 2), F.avg_pool2d(others, 2)
    return product


def disagreement(images: Tensor, others: Tensor, *, window: int, smooth: float) -> Tensor:
    """(b, 1, h, w) twice, in [0, 1] -> (b, 1, h, w): one minus SSIM's contrast and structure, in
    box windows around each pixel, after a Gaussian of `smooth` pixels. Zero where both images are
    flat or the same, one where one of them is flat."""
    with torch.autocast(images.device.type, enabled=False):  # variances are small differences
        a, b = (
            gaussian_blur(at_least_float32(both)[:, 0], smooth)[:, None]
            for both in (images, others)
        )
        # Five moments in one pooling give means, variances and the covariance of each window.
        moments = torch.cat((a, b, a * a, b * b, a * b), 1)  # (b, 5, h, w)
        inside = F.avg_pool2d(moments, window, 1, window // 2, count_include_pad=False)
        mean_a, mean_b, aa, bb, ab = inside[:, :, None].unbind(1)  # (b, 1, h, w) each
        covariance = ab - mean_a * mean_b
        variances = aa - mean_a.square() + bb - mean_b.square()
        return 1 - (2 * covariance + CONTRAST) / (variances + CONTRAST)


def scales_of(size: int, window: int) -> int:
    """How many of the five scales are larger than the window."""
    scales = [n for n in range(len(SCALE_WEIGHTS)) if (window - 1) << n < size]
    return max(1, len(scales))


def _similarities(images: Tensor, others: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Similarities of luminance, and of contrast and structure together, at each location of the
    window."""
    with torch.autocast(images.device.type, enabled=False):  # variances are small differences
        a, b = at_least_float32(images), at_least_float32(others)
        moments = torch.cat((a, b, a * a, b * b, a * b), 1)  # (b, 5, h, w)
        mean_a, mean_b, aa, bb, ab = _blur(moments, window).unbind(1)
        square_a, square_b, product = mean_a * mean_a, mean_b * mean_b, mean_a * mean_b
        # Variances and covariance as E[ab] - E[a]E[b], from the blurred moments.
        luminance = (2 * product + LUMINANCE) / (square_a + square_b + LUMINANCE)
        spread = (aa - square_a) + (bb - square_b)
        return luminance, (2 * (ab - product) + CONTRAST) / (spread + CONTRAST)


def _blur(maps: Tensor, window: int) -> Tensor:
    """Gaussian means over windows that lie within the image."""
    # Separable: one pass along rows and one along columns, each channel by itself.
    place = torch.arange(window, device=maps.device, dtype=maps.dtype) - (window - 1) / 2
    weights = torch.softmax(-place.square() / (2 * SIGMA**2), 0)
    kernel = weights.expand(maps.shape[1], 1, 1, window)
    rows = F.conv2d(maps, kernel, groups=maps.shape[1])
    return F.conv2d(rows, kernel.mT, groups=maps.shape[1])
