"""The store returns its pixels, shifts and scales them, and runs in one compiled graph."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from squid.data.store import Augment, ImageStore, Interpolation

PIXELS = torch.randint(0, 256, (7, 1, 12, 10), generator=torch.Generator().manual_seed(0)).byte()
KINDS: list[Interpolation] = ["nearest", "bilinear"]


def rows(*affine: tuple[float, float, float]) -> Tensor:
    return torch.tensor(affine)


@pytest.mark.parametrize("kind", KINDS)
def test_identity_returns_the_pixels_exactly(kind: Interpolation) -> None:
    store = ImageStore(PIXELS, "cpu", interpolation=kind)
    index = torch.tensor([5, 0, 5])
    same = rows((0.0, 0.0, 1.0)).expand(3, 3)
    assert torch.equal(store.batch(index), PIXELS[index].float() / 255)
    assert torch.equal(store.batch(index, same), PIXELS[index].float() / 255)


@pytest.mark.parametrize("kind", KINDS)
def test_shifts_go_right_and_down_and_fill_with_zero(kind: Interpolation) -> None:
    store = ImageStore(PIXELS, "cpu", interpolation=kind)
    moved = store.batch(torch.tensor([2]), rows((0.2, 0.25, 1.0)))[0, 0]  # 2 columns, 3 rows
    expected = PIXELS[2, 0].float() / 255
    torch.testing.assert_close(moved[3:, 2:], expected[:-3, :-2], atol=1e-5, rtol=0)
    assert moved[:3].abs().max() < 1e-5
    assert moved[:, :2].abs().max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_follows_its_own_affine_as_grid_sample_does(kind: Interpolation) -> None:
    affine = Augment(shift=0.3, scale=(0.6, 1.5)).draw(7, torch.Generator().manual_seed(1), "cpu")
    store = ImageStore(PIXELS, "cpu", interpolation=kind)
    theta = torch.zeros(7, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1 / affine[:, 2]
    theta[:, :, 2] = -2 * affine[:, :2] / affine[:, 2:]
    grid = F.affine_grid(theta, list(PIXELS.shape), align_corners=False)
    expected = F.grid_sample(PIXELS.float() / 255, grid, mode=kind, align_corners=False)
    got = store.batch(torch.arange(7), affine)
    close = (got - expected).abs() < 1e-4
    # At half-way points nearest may round either way.
    assert close.float().mean() > (0.99 if kind == "nearest" else 0.9999)


def test_scale_above_one_enlarges() -> None:
    pixels = torch.zeros(1, 1, 20, 20, dtype=torch.uint8)
    pixels[..., 8:12, 8:12] = 255
    area = [
        ImageStore(pixels, "cpu").batch(torch.tensor([0]), rows((0.0, 0.0, scale))).sum().item()
        for scale in (0.5, 1.0, 1.5)
    ]
    assert area == [4.0, 16.0, 36.0]


def test_draws_stay_in_range_and_follow_the_generator() -> None:
    augment = Augment()
    draws = augment.draw(2000, torch.Generator().manual_seed(3), "cpu")
    assert torch.equal(draws, augment.draw(2000, torch.Generator().manual_seed(3), "cpu"))
    assert draws[:, :2].abs().max() <= 0.05
    assert draws[:, :2].min() < -0.045
    assert 0.95 <= draws[:, 2].min() < 0.955
    assert 1.045 < draws[:, 2].max() <= 1.05


def test_batches_cover_everything_in_order() -> None:
    store = ImageStore(PIXELS, "cpu")
    images, index = zip(*store.batches(3), strict=True)
    assert [len(batch) for batch in images] == [3, 3, 1]
    assert torch.equal(torch.cat(index), torch.arange(7))
    assert torch.equal(torch.cat(images), PIXELS.float() / 255)


def test_what_exceeds_the_budget_stays_on_the_host() -> None:
    assert ImageStore(PIXELS, "cpu", budget_bytes=PIXELS.nbytes).on_device
    store = ImageStore(PIXELS, "cpu", budget_bytes=PIXELS.nbytes - 1)
    assert not store.on_device
    assert torch.equal(store.batch(torch.tensor([1])), PIXELS[1:2].float() / 255)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_one_graph(kind: Interpolation) -> None:
    store = ImageStore(PIXELS, "cpu", interpolation=kind)
    affine = Augment().draw(4, torch.Generator().manual_seed(1), "cpu")
    index = torch.tensor([3, 1, 4, 1])
    traced = torch.compile(store.batch, backend="eager", fullgraph=True)
    assert torch.equal(traced(index, affine), store.batch(index, affine))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_replays_in_a_cuda_graph(kind: Interpolation) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    store = ImageStore(PIXELS, "cuda", interpolation=kind)
    affine = Augment().draw(4, torch.Generator("cuda").manual_seed(1), "cuda")
    index = torch.tensor([3, 1, 4, 1], device="cuda")
    expected = store.batch(index, affine)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = store.batch(index, affine)
    graph.replay()
    assert torch.equal(replayed, expected)
