"""What only PANDA has: nearest neighbours, a centre that stays, DN2 without training."""

import pytest
import torch

from squid.methods.base import Batch
from squid.methods.panda import Panda, PandaConfig, nearest_squared


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_find_what_brute_force_finds(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, features = (torch.randn(n, 5, generator=generator) for n in (4, 30))
    every = (queries[:, None] - features).square().sum(-1)
    found = nearest_squared(queries, features, 3, chunk=chunk)
    torch.testing.assert_close(found, every.sort().values[:, :3])


def test_a_training_feature_has_no_distance_to_itself() -> None:
    features = 1000.0 + torch.rand(20, 64)  # where products of matrices lose all digits
    assert nearest_squared(features[:3], features, 1).eq(0).all()


def test_fewer_features_than_k_are_all_neighbours() -> None:
    assert nearest_squared(torch.zeros(2, 3), torch.ones(1, 3), k=2).tolist() == [[3.0], [3.0]]


def batches(n: int = 6) -> list[Batch]:
    images = torch.rand(n, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    return [Batch(part, torch.arange(len(part)), {}) for part in images.split(4)]


def fitted(**settings: object) -> Panda:
    torch.manual_seed(0)
    method = Panda(PandaConfig(size=32, **settings)).eval()
    with torch.no_grad():
        method.finalize(batches())
    return method


def test_the_score_is_the_sum_over_neighbours() -> None:
    method = fitted()
    images = torch.cat([batch.images for batch in batches()])
    with torch.no_grad():
        features = method._embed(images)
        every = (features[:, None] - features).square().sum(-1).sort().values
        torch.testing.assert_close(method.score(images), every[:, :2].sum(1))


def test_compactness_is_the_mean_distance_to_the_first_centre() -> None:
    method = fitted()
    (stage,) = method.stages()
    with torch.no_grad():
        stage.prepare(batches())
        features = torch.cat([method._embed(batch.images) for batch in batches()])
        torch.testing.assert_close(method.centre, features.mean(0))
        (objective,) = stage.objectives
        loss = objective.loss(batches()[0], {})["compactness"]
    expected = (features[:4] - features.mean(0)).square().sum(1).mean() / features.shape[1]
    torch.testing.assert_close(loss, expected)
    assert objective.optimizer.clip == 1e-3
    assert len(objective.parameters) == 12  # weights and biases of VGG16's blocks 4 and 5


def test_no_epochs_is_dn2() -> None:
    assert fitted(epochs=0).stages() == ()
