"""What only the method of synthetic lesions has."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from squid.config import parse
from squid.errors import ConfigError
from squid.methods.base import Batch
from squid.methods.synthetic_lesions import SyntheticLesions, SyntheticLesionsConfig
from tests.chests import chests

SIDE, MANY = 32, 64


def tiny(**settings: object) -> SyntheticLesions:
    torch.manual_seed(0)
    return SyntheticLesions(SyntheticLesionsConfig(size=SIDE, channels=(4, 8), **settings))


def clouds(b: int) -> Tensor:
    """(b, 1, side, side) smooth images in [0, 1]."""
    coarse = torch.rand(b, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")


def noise_for(method: SyntheticLesions, b: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    make = {"uniform": torch.rand, "normal": torch.randn}
    specs = method.noise(b).items()
    return {name: make[spec.kind](spec.shape, generator=generator) for name, spec in specs}


def batch(method: SyntheticLesions, b: int = MANY) -> Batch:
    return Batch(clouds(b), torch.arange(b), noise_for(method, b))


def test_noise_names_the_only_chance() -> None:
    method = tiny()
    first, again = (method.loss(batch(method), {}) for _ in range(2))
    assert first == again
    other = Batch(clouds(MANY), torch.arange(MANY), noise_for(method, MANY, seed=1))
    assert method.loss(other, {})["cross_entropy"] != first["cross_entropy"]


def test_the_score_is_the_mean_of_the_heatmap() -> None:
    method, images = tiny().eval(), clouds(3)
    with torch.no_grad():
        assert_close(method.score(images), method.heatmap(images).mean((1, 2)))
        assert method.reconstruct(images) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 72}, "size 72 must be a multiple of 16, from 32 on"),
        ({"size": 16}, "size 16 must be a multiple of 16, from 32 on"),
        ({"tasks": ["warp", "warp"]}, "each kind once"),
        ({"tasks": []}, "at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(SyntheticLesionsConfig, settings, "a recipe")


def in_lungs() -> SyntheticLesions:
    """After its only stage was begun, and ended."""
    method, batches = tiny(region="lungs").eval(), [Batch(chests(MANY), torch.arange(MANY), {})]
    (stage,) = method.stages()
    with torch.no_grad():
        stage.prepare(batches)
        method.finalize(batches)
    return method


def test_within_the_lungs_lesions_are_centred_there(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = []
    monkeypatch.setattr(
        "squid.methods.synthetic_lesions.segmentation_terms",
        lambda logits, target: targets.append(target) or {"none": logits.sum()},
    )
    for method in (tiny(), in_lungs()):
        for seed in range(20):
            noise = noise_for(method, MANY, seed)
            method.loss(Batch(chests(MANY), torch.arange(MANY), noise), {})
    anywhere, within = (torch.cat(part).mean((0, 1)) for part in (targets[:20], targets[20:]))
    border = torch.ones(SIDE, SIDE, dtype=torch.bool)
    border[4:-4, 4:-4] = False
    assert anywhere[border].mean() > 0.3 * anywhere.mean()
    assert within[border].mean() < 0.2 * within.mean()


def test_within_the_lungs_the_heatmap_is_what_lies_above_most_healthy_logits() -> None:
    method, images = in_lungs(), chests(MANY)
    with torch.no_grad():
        logits = method.network(images)[:, 0]
        spread, mean = torch.std_mean(logits.double())
        above = ((logits - mean) / spread + 2).relu().float()
        assert_close(method.heatmap(images), method.lungs.shade(above), atol=1e-3, rtol=1e-3)
        assert_close(method.score(images), method.lungs.mean(logits))
