"""Errors in units of a predicted variance (Kendall & Gal, NeurIPS 2017, arXiv:1703.04977)."""

from torch import Tensor

LOG_VARIANCE = (-12.0, 6.0)
"""Smallest and largest logarithm of a variance: a pixel that is black in every image has none."""


def relative_error(images: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The squared error of each pixel divided by its predicted variance."""
    return (images - mean).square() * (-log_variance).exp()


def relative_residual(images: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The error of each pixel with its sign, in units of its predicted standard deviation."""
    return (images - mean) * (-0.5 * log_variance).exp()


def gaussian_terms(images: Tensor, mean: Tensor, log_variance: Tensor) -> dict[str, Tensor]:
    """Named scalars whose sum is twice the negative log-likelihood of a Gaussian, but for a
    constant, as a mean over pixels."""
    error = relative_error(images, mean, log_variance)
    return {"error": error.mean(), "log_variance": log_variance.mean()}
