"""What judges said over time."""

import torch

from squid.nn.discriminator import Discriminator
from squid.nn.opinions import VIEWS, Opinions, by_view, rebatched, views

SIZE, IMAGES = 16, 5


def drawings(seed):
    """Of the views of five images."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(IMAGES * VIEWS, 1, SIZE, SIZE, generator=generator)


def judge():
    return Discriminator(SIZE, 2, 1).requires_grad_(False)


def doubts(opinions, drawn):
    return by_view(-opinions.judge(drawn, "image").mean(1))


def in_units(doubts):
    spread, mean = torch.std_mean(doubts[:, 0], correction=0)
    return (doubts - mean) / spread


def heard(*sittings):
    opinions = Opinions(judge())
    opinions.begin(IMAGES)
    for drawn in sittings:
        opinions.hear(drawn.split(2 * VIEWS), "image")
    return opinions


def test_later_sittings_weigh_more():
    sittings = [drawings(seed) for seed in range(3)]
    opinions = heard(*sittings)
    first, second, third = (in_units(doubts(opinions, drawn)) for drawn in sittings)
    torch.testing.assert_close(opinions.said, (first + 2 * second + 3 * third) / 6)


def test_a_judge_who_repeats_himself_contradicts_nobody():
    drawn = drawings(0)
    opinions = heard(drawn, drawn)
    again, index = doubts(opinions, drawn), torch.tensor([3, 1])
    opinions.take_measure(again.split(2))
    same = opinions.contradiction(again[index], index)
    torch.testing.assert_close(same, torch.zeros(2, VIEWS), rtol=0, atol=1e-5)
    assert opinions.contradiction(again[index], torch.tensor([0, 2])).abs().min() > 1e-3


def test_a_judge_who_tells_nothing_apart_divides_by_nothing():
    assert heard(torch.zeros(IMAGES * VIEWS, 1, SIZE, SIZE)).said.isfinite().all()


def test_the_averaged_judge_is_nearer_to_the_later_ones():
    seen = [judge() for _ in range(3)]
    opinions = Opinions(judge())
    assert [opinions.average(one) for one in seen] == [1, 2, 3]
    first, second, third = (one.head.bias for one in seen)
    torch.testing.assert_close(
        opinions.judge.module.head.bias, (first + 2 * second + 3 * third) / 6
    )


def test_nothing_in_it_learns():
    discriminator = Discriminator(SIZE, 2, 1)
    assert not any(p.requires_grad for p in Opinions(discriminator).parameters())
    assert all(p.requires_grad for p in discriminator.parameters())


def test_views_are_the_image_and_the_image_moved():
    images = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    seen = views(images).view(3, VIEWS, 1, 32, 32)
    assert torch.equal(seen[:, 0], images)
    assert torch.equal(seen[:, 1, :, :-1, 1:], images[:, :, 1:, :-1]), "right and up"
    assert torch.equal(seen[:, 1, :, -1], seen[:, 1, :, -2]), "the border goes on"


def test_rebatched_images_are_the_same_in_order():
    images = torch.arange(13)
    together = list(rebatched(images.split(3), 5))
    assert [len(batch) for batch in together] == [6, 6, 1]
    assert torch.equal(torch.cat(together), images)
