"""What only PANDA has: a centre that stays, blocks that move, DN2 without training."""

import torch

from squid.methods.base import Batch
from squid.methods.panda import Panda, PandaConfig


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
