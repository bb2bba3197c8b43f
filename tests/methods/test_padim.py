"""What only PaDiM has: its choice of channels and the Gaussian of each location."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis

from squid.errors import ConfigError
from squid.methods.base import Batch
from squid.methods.padim import Padim, PadimConfig


def random_images(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, 1, 32, 32, generator=torch.Generator().manual_seed(seed))


def fitted(**settings: object) -> Padim:
    torch.manual_seed(0)
    method = Padim(PadimConfig(size=32, keep=6, **settings)).eval()
    batches = [Batch(part, torch.arange(len(part)), {}) for part in random_images(20, 0).split(7)]
    with torch.no_grad():
        method.finalize(batches)
    return method


def test_distances_are_those_of_each_locations_own_gaussian() -> None:
    method = fitted()
    with torch.no_grad():
        training, height = method._embed(random_images(20, 0))  # (n, p, d)
        queries, _ = method._embed(random_images(3, 1))
        distance = method.gaussian.distance(queries)
    assert (height, training.shape[1:]) == (8, (64, 6))
    for place in (0, 37):
        x = training[:, place].double().numpy()
        inverse = np.linalg.inv(np.cov(x, rowvar=False) + 0.01 * np.eye(6))
        expected = [mahalanobis(q, x.mean(0), inverse) for q in queries[:, place].double().numpy()]
        np.testing.assert_allclose(distance[:, place], expected, rtol=1e-3)


def kept(run: int, **settings: int) -> torch.Tensor:
    torch.manual_seed(run)
    return Padim(PadimConfig(size=32, **settings)).kept


def test_channels_are_chosen_by_the_seed_and_saved() -> None:
    first = kept(1)
    assert torch.equal(first, kept(1))
    assert not torch.equal(first, kept(2))
    assert torch.equal(kept(1, seed=5), kept(2, seed=5))
    assert len(first.unique()) == 100
    assert "kept" in fitted().state_dict()


def test_the_score_is_the_highest_or_the_mean_of_the_highest() -> None:
    images = random_images(2, 1)
    with torch.no_grad():
        method = fitted()
        flat = method.heatmap(images).flatten(1).sort(descending=True).values
        torch.testing.assert_close(method.score(images), flat[:, 0])
        top = fitted(image_score="top_percent")
        torch.testing.assert_close(top.score(images), flat[:, :10].mean(1))


def test_more_channels_than_there_are_is_an_error() -> None:
    with pytest.raises(ConfigError, match="keep = 1000 exceeds the 896"):
        Padim(PadimConfig(keep=1000))
