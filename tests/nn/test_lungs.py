"""Finding the lungs in the mean of healthy chest X-rays."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from squid.data.nih import Nih
from squid.data.rsna import Rsna
from squid.data.zhanglab import ZhangLab
from squid.nn.lungs import Lungs, find_lungs, what_counts

SIDE = 64


def chest(side: int = SIDE, *, lungs: tuple[float, ...] = (-0.4, 0.4)) -> Tensor:
    """(1, 1, side, side): a bright body with dark lungs, dark air beside the neck and the waist."""
    across = torch.linspace(-1, 1, side)
    down = across[:, None]
    image = torch.full((side, side), 0.8)
    for x in lungs:
        image[((across - x) / 0.22) ** 2 + (down / 0.45) ** 2 < 1] = 0.3
    image[(across.abs() > 0.5) & (down < -0.8)] = 0.0
    image[(across.abs() > 0.85) & (down > 0.3)] = 0.0
    return image[None, None]


def fitted(*images: Tensor) -> Lungs:
    lungs = Lungs(images[0].shape[-1])
    lungs.fit(images)
    return lungs


@pytest.mark.parametrize("side", [32, 64, 128])
def test_weight_lies_on_both_lungs_and_sums_to_one(side):
    weight = fitted(chest(side)).weight
    assert_close(weight.sum(), torch.tensor(1.0))
    inside = chest(side)[0, 0] == 0.3
    assert weight[inside].sum() > 0.6
    assert weight[: side // 8].sum() < 0.01
    assert_close(weight, weight.flip(1))


def test_many_noisy_images_show_what_one_does():
    noise = torch.Generator().manual_seed(0)
    batches = [(chest() + 0.3 * torch.randn(50, 1, SIDE, SIDE, generator=noise)).clamp(0, 1)] * 2
    assert (fitted(*batches).weight - fitted(chest()).weight).abs().sum() < 0.3


@pytest.mark.parametrize(
    "images",
    [chest(lungs=(-0.4,)), torch.full((2, 1, SIDE, SIDE), 0.5), chest().flip(0) * 0],
    ids=["one lung", "gray", "black"],
)
def test_without_two_lungs_the_whole_image_counts(images, caplog):
    lungs, maps = fitted(images), torch.rand(3, SIDE, SIDE)
    assert "shows no lungs" in caplog.text
    assert_close(lungs.mean(maps), maps.mean((1, 2)))
    assert_close(lungs.shade(maps), maps)


def test_places_are_as_dense_as_the_weights():
    lungs = fitted(chest())
    places = lungs.places(torch.rand(20_000, 3, 2, generator=torch.Generator().manual_seed(0)))
    assert places.shape == (20_000, 3, 2)
    assert 0 <= places.min() < places.max() <= 1
    across, down = (SIDE * places.flatten(0, 1)).long().clamp_max(SIDE - 1).unbind(1)
    found = torch.zeros(SIDE, SIDE).index_put((down, across), torch.tensor(1.0), accumulate=True)
    assert (found / found.sum() - lungs.weight).abs().sum() < 0.15


def test_places_are_everywhere_where_no_lungs_are_known():
    places = Lungs(SIDE).places(torch.rand(5_000, 2, generator=torch.Generator().manual_seed(0)))
    assert_close(places.mean(0), torch.tensor([0.5, 0.5]), atol=0.02, rtol=0)
    assert_close(places.std(0), torch.tensor([12**-0.5] * 2), atol=0.02, rtol=0)


def test_what_counts_is_put_into_words():
    with_lungs, without = fitted(chest()), fitted(chest(lungs=(-0.4,)))
    both = torch.nn.ModuleList([with_lungs, without])
    assert what_counts(with_lungs).startswith("the lungs, where")
    for network in (without, both):
        assert what_counts(network) == "the whole image, as the mean training image shows no lungs"
    assert what_counts(torch.nn.Linear(1, 1)) == ""


def test_shading_keeps_the_lungs_and_fades_the_rest():
    lungs = fitted(chest())
    shaded = lungs.shade(torch.ones(1, SIDE, SIDE))[0]
    assert shaded.max() == 1.0
    assert shaded[0].max() < 0.01
    assert 0 < lungs.mean(torch.ones(1, SIDE, SIDE)) <= 1.0 + 1e-6


def test_areas_at_the_border_and_small_ones_are_no_lungs():
    dark = np.zeros((SIDE, SIDE), dtype=bool)
    dark[10:40, 8:20] = dark[10:40, 44:56] = True
    assert np.array_equal(find_lungs(dark), dark)
    small = dark.copy()
    small[50:53, 30:33] = True
    assert np.array_equal(find_lungs(small), dark)
    open_to_the_border = dark.copy()
    open_to_the_border[10:12, :20] = True
    assert find_lungs(open_to_the_border) is None


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("data", [Rsna(view="PA"), Rsna(view="AP"), Nih(), ZhangLab()], ids=str)
def test_lungs_of_real_chest_x_rays_are_found(data, size, shared):
    """One on each side of the spine, together a seventh to a fourth of the image."""
    shared(f"data/{data.folders[-1]}")
    pixels = data.load(size).train.pixels[:300].float() / 255
    weight = fitted(pixels).weight
    there = weight > weight.max() / 2
    assert 0.10 < there.float().mean() < 0.25
    half = size // 2
    assert 0.35 < weight[:, :half].sum() < 0.65
    # The middle of the chest is left out, and so is what lies below the diaphragm.
    assert weight[half, half] < weight.max() / 2
    assert weight[int(0.85 * size) :].sum() < 0.05
