"""Temporal ensembling of a discriminator's scores."""

import pytest
import torch

from squid.methods.squid.temporal_ensemble import VIEWS, TemporalEnsemble, by_view, rebatched, views
from squid.nn.discriminator import Discriminator

SIZE, IMAGES = 16, 5


@pytest.fixture(autouse=True)
def seeded():
    """Weights that do not depend on the tests before."""
    torch.manual_seed(0)


def reconstructions(seed):
    """All views of five images."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(IMAGES * VIEWS, 1, SIZE, SIZE, generator=generator)


def discriminator():
    return Discriminator(SIZE, 2).requires_grad_(False)


def scores(ensemble, images):
    return by_view(-ensemble.discriminator(images, "image").mean(1))


def standardised(scores):
    spread, mean = torch.std_mean(scores[:, 0], correction=0)
    return (scores - mean) / spread


def updated(*all_reconstructions):
    ensemble = TemporalEnsemble(discriminator())
    ensemble.begin(IMAGES)
    for images in all_reconstructions:
        ensemble.update_targets(images.split(2 * VIEWS), "image")
    return ensemble


def test_later_updates_of_the_targets_weigh_more():
    updates = [reconstructions(seed) for seed in range(3)]
    ensemble = updated(*updates)
    first, second, third = (standardised(scores(ensemble, images)) for images in updates)
    torch.testing.assert_close(ensemble.targets, (first + 2 * second + 3 * third) / 6)


def test_scores_equal_to_the_targets_have_no_error():
    same = reconstructions(0)
    ensemble = updated(same, same)
    again, index = scores(ensemble, same), torch.tensor([3, 1])
    ensemble.fit_scale(again.split(2))
    error = ensemble.error(again[index], index)
    torch.testing.assert_close(error, torch.zeros(2, VIEWS), rtol=0, atol=1e-5)
    assert ensemble.error(again[index], torch.tensor([0, 2])).abs().max() > 0.1


def test_equal_scores_are_not_divided_by_their_spread():
    assert updated(torch.zeros(IMAGES * VIEWS, 1, SIZE, SIZE)).targets.isfinite().all()


def test_the_averaged_discriminator_is_nearer_to_later_states():
    states = [discriminator() for _ in range(3)]
    ensemble = TemporalEnsemble(discriminator())
    assert [ensemble.average(one) for one in states] == [1, 2, 3]
    first, second, third = (one.head.bias for one in states)
    torch.testing.assert_close(
        ensemble.discriminator.module.head.bias, (first + 2 * second + 3 * third) / 6
    )


def test_none_of_its_parameters_is_learned():
    learning = Discriminator(SIZE, 2)
    assert not any(p.requires_grad for p in TemporalEnsemble(learning).parameters())
    assert all(p.requires_grad for p in learning.parameters())


def test_views_are_the_image_and_the_image_moved():
    images = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    both = views(images).view(3, VIEWS, 1, 32, 32)
    assert torch.equal(both[:, 0], images)
    assert torch.equal(both[:, 1, :, :-1, 1:], images[:, :, 1:, :-1]), "right and up"
    assert torch.equal(both[:, 1, :, -1], both[:, 1, :, -2]), "the border is repeated"


def test_rebatched_images_are_the_same_in_order():
    images = torch.arange(13)
    together = list(rebatched(images.split(3), 5))
    assert [len(batch) for batch in together] == [6, 6, 1]
    assert torch.equal(torch.cat(together), images)
