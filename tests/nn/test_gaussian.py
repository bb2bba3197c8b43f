"""Gaussians: streaming moments, shrunk covariance, distances, against numpy, scipy and sklearn."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf

from squid.nn.gaussian import Gaussian, Moments, ledoit_wolf


@pytest.fixture
def features() -> torch.Tensor:
    """(n, p, d), correlated, far from zero."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(3, 4, 4, generator=generator)
    white = torch.randn(50, 3, 4, generator=generator)
    return torch.einsum("npd,pde->npe", white, mix) + 100.0


def test_moments_of_batches_are_those_of_all(features: torch.Tensor) -> None:
    moments = Moments()
    for batch in features.split([7, 30, 13]):
        moments.add(batch)
    for place in range(3):
        expected = np.cov(features[:, place].double().numpy(), rowvar=False)
        np.testing.assert_allclose(moments.covariance()[place], expected, rtol=1e-8)
    np.testing.assert_allclose(moments.mean(), features.double().mean(0), rtol=1e-12)


def test_distance_is_that_of_scipy_at_every_location(features: torch.Tensor) -> None:
    moments = Moments()
    moments.add(features)
    gaussian = Gaussian()
    gaussian.fit(moments.mean(), moments.covariance())
    queries = features[:5] + 1.0
    distance = gaussian.distance(queries)  # (5, 3)
    for place in range(3):
        mean, inverse = moments.mean()[place], np.linalg.inv(moments.covariance()[place])
        expected = [mahalanobis(query, mean, inverse) for query in queries[:, place].double()]
        np.testing.assert_allclose(distance[:, place], expected, rtol=1e-4)


def test_ledoit_wolf_is_that_of_sklearn(features: torch.Tensor) -> None:
    x = features[:6, 0]  # so few that shrinking matters
    expected = LedoitWolf().fit(x.double().numpy())
    assert expected.shrinkage_ > 0.05
    np.testing.assert_allclose(ledoit_wolf(x), expected.covariance_)
    gaussian = Gaussian()
    gaussian.fit(x.mean(0)[None], ledoit_wolf(x)[None])
    squared = gaussian.distance(x[:, None])[:, 0] ** 2
    np.testing.assert_allclose(squared, expected.mahalanobis(x.double().numpy()), rtol=1e-3)
