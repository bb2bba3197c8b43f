"""Draws are a pure function of seed, stage, epoch and step, and ranks share them."""

import pytest
import torch

from squid.data.store import Augment
from squid.methods.base import Method
from squid.nn.noise import NoiseSpec
from squid.train.sampler import Sampler

IMAGES, BATCH = 10, 4


class Noisy(Method):
    def noise(self, b):
        return {
            "mask": NoiseSpec((b, 1, 3), "bernoulli", 0.25),
            "code": NoiseSpec((2 * b, 5), "normal"),
            "place": NoiseSpec((b,), "uniform"),
        }


def sampler(*, seed=0, stage=0, rank=0, world=1, augment=True):
    return Sampler(
        Noisy(),
        Augment() if augment else None,
        seed=seed,
        stage=stage,
        images=IMAGES,
        device=torch.device("cpu"),
        rank=rank,
        world=world,
    )


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


def test_order_of_asking_does_not_matter():
    forwards, backwards = sampler(), sampler()
    places = [(epoch, step) for epoch in range(3) for step in range(2)]
    first = {place: forwards.draw(*place, BATCH) for place in places}
    second = {place: backwards.draw(*place, BATCH) for place in reversed(places)}
    assert all(same(first[place], second[place]) for place in places)


@pytest.mark.parametrize(
    ("other", "place"), [({"seed": 1}, (0, 0)), ({"stage": 1}, (0, 0)), ({}, (1, 0)), ({}, (0, 1))]
)
def test_seed_stage_epoch_and_step_all_matter(other, place):
    here, there = sampler().draw(0, 0, BATCH), sampler(**other).draw(*place, BATCH)
    assert not torch.equal(here.index, there.index)
    assert not torch.equal(here.affine, there.affine)
    assert not torch.equal(here.noise["code"], there.noise["code"])


def test_an_epoch_sees_every_image_once():
    seen = torch.cat([sampler().draw(4, step, BATCH).index for step in range(3)])
    assert seen.tolist() != list(range(IMAGES))
    assert sorted(seen.tolist()) == list(range(IMAGES))
    assert len(sampler().draw(4, 2, BATCH).index) == IMAGES % BATCH


def test_ranks_share_the_draws_of_the_joint_batch():
    whole = sampler().draw(2, 1, BATCH)
    shares = [sampler(rank=rank, world=2).draw(2, 1, BATCH) for rank in range(2)]
    for joint, *parts in zip(whole.tensors(), *(s.tensors() for s in shares), strict=True):
        assert torch.equal(joint, torch.cat(parts))


def test_noise_is_of_its_kind():
    method = Noisy()
    method.noise = lambda b: {
        "mask": NoiseSpec((5000,), "bernoulli", 0.25),
        "code": NoiseSpec((5000,), "normal"),
        "place": NoiseSpec((5000,), "uniform"),
    }
    settings = {"seed": 0, "stage": 0, "images": IMAGES, "device": torch.device("cpu")}
    noise = Sampler(method, None, **settings).draw(0, 0, BATCH).noise
    assert set(noise["mask"].tolist()) == {0.0, 1.0}
    assert noise["mask"].mean().item() == pytest.approx(0.25, abs=0.03)
    assert (noise["code"].mean().item(), noise["code"].std().item()) == pytest.approx(
        (0, 1), abs=0.06
    )
    assert 0 <= noise["place"].min() < 0.01 < 0.99 < noise["place"].max() <= 1


def test_no_augmentation_draws_no_movement():
    assert sampler(augment=False).draw(0, 0, BATCH).affine is None


def test_draws_can_be_copied_into_those_of_another_step():
    first, second = sampler().draw(0, 0, BATCH), sampler().draw(0, 1, BATCH)
    static = first.clone()
    static.copy_(second)
    assert same(static, second)
    assert same(first, sampler().draw(0, 0, BATCH))
