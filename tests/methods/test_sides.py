"""Methods that halve an image as often as they can: the sides they take, and what they build."""

import pytest
import torch

from squid.config import parse
from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.methods import METHODS, build
from squid.train import Engine, Monitor, TrainConfig, train

SMALL = {
    "ganomaly": {"width": 2, "code": 6, "epochs": 1},
    "f_anogan": {"width": 2, "code": 6, "steps": 1, "critic_steps": 1, "encoder_steps": 1},
    "salad": {"width": 2, "code": 6, "epochs": 1},
    "igd": {"width": 2, "code": 6, "epochs": 1},
}
PUBLISHED = {
    ("ganomaly", 64): 13_487_232,
    ("ganomaly", 128): 49_515_648,
    ("f_anogan", 64): 24_561_218,
    ("f_anogan", 128): 39_512_642,
    ("salad", 64): 10_470_529,
    ("salad", 128): 37_747_841,
    ("igd", 64): 17_687_298,
    ("igd", 128): 25_564_418,
}
"""Parameters."""


def make(name, **settings):
    torch.manual_seed(0)
    return build(METHODS[name].Config.model_validate(settings))


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_powers_of_two_have_the_published_parameters(name, size):
    with torch.device("meta"):
        method = make(name, size=size)
    assert sum(p.numel() for p in method.parameters()) == PUBLISHED[name, size]


@pytest.mark.parametrize("name", SMALL)
def test_three_times_a_power_of_two_can_be_learned(name):
    """One step of each objective changes its weights; images, maps and scores have their shapes."""
    method = make(name, size=48, batch_size=4, **SMALL[name])
    objectives = [o for stage in method.stages() for o in stage.objectives]
    # Not biases: the critic's last cancel in the difference of its outputs.
    learned = [p for o in objectives for p in o.parameters if p.ndim > 1]
    before = [p.detach().clone() for p in learned]
    pixels = torch.randint(0, 256, (4, 1, 48, 48), dtype=torch.uint8)
    store, config = ImageStore(pixels, "cpu"), TrainConfig(augment=False)
    train(method, store, config, seed=0, engine=Engine("cpu"), monitor=Monitor())
    moved = [not torch.equal(p, old) for p, old in zip(learned, before, strict=True)]
    assert all(moved)
    images = pixels / 255
    with torch.no_grad():
        reconstructions, scores = method.reconstruct(images), method.score(images)
        assert method.heatmap(images).shape == (4, 48, 48)
    assert reconstructions.shape == images.shape
    assert scores.shape == (4,)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("size", [-64, 0, 16, 24, 40, 80, 100, 144])
def test_other_sides_are_refused(name, size):
    with pytest.raises(ConfigError, match=f"{size} .* a power of two or three times one, from 32"):
        parse(METHODS[name].Config, {"size": size}, "recipe")
