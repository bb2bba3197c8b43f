"""What only CutPaste has: pasted patches, and a ResNet18 of gray images."""

import math

import pytest
import torch

from squid.methods.base import Batch
from squid.methods.cutpaste import Cut, CutPaste, CutPasteConfig, ResNet18, paste

SIDE = 16


def ramp() -> torch.Tensor:
    """(1, 1, h, w) with a value of its own at every pixel, in [0, 1)."""
    return torch.arange(SIDE * SIDE).view(1, 1, SIDE, SIDE) / SIDE**2


def cut(height: float, width: float, source: tuple, target: tuple, **settings: float) -> Cut:
    values = {"angle": 0.0, "brightness": 1.0, "contrast": 1.0} | settings
    scalars = {name: torch.tensor([value]) for name, value in values.items()}
    return Cut(
        height=torch.tensor([height]), width=torch.tensor([width]),
        source=torch.tensor([source]), target=torch.tensor([target]), **scalars,
    )  # fmt: skip


def test_a_patch_is_copied_from_corner_to_corner() -> None:
    image = ramp()
    pasted = paste(image, cut(4.0, 6.0, (0.0, 0.0), (1.0, 1.0)))
    torch.testing.assert_close(pasted[..., 12:, 10:], image[..., :4, :6])
    pasted[..., 12:, 10:] = image[..., 12:, 10:]
    assert torch.equal(pasted, image)


def test_places_between_pixels_keep_the_size_of_the_patch() -> None:
    for place in (0.13, 0.5, 0.77):
        pasted = paste(ramp(), cut(3.0, 5.0, (1.0, place), (place, 0.0)))
        changed = (pasted != ramp())[0, 0]
        assert changed.sum() == 15
        assert changed.any(1).sum() == 3
        assert changed.any(0).sum() == 5


def test_a_quarter_turn_rotates_the_patch() -> None:
    image = ramp()
    turn = cut(2.0, 6.0, (0.0, 0.0), (1.0, 1.0), angle=math.pi / 2 - 1e-4)
    changed = paste(image, turn)[0, 0, 10:, 14:]  # now six high and two wide
    torch.testing.assert_close(changed, torch.rot90(image[0, 0, :2, :6], -1))


def test_a_rotated_patch_stays_inside_and_keeps_its_area() -> None:
    white = torch.zeros(1, 1, 64, 64)
    white[..., :32, :] = 1.0
    scar = cut(6.0, 20.0, (0.0, 0.0), (1.0, 1.0), angle=math.radians(30))
    pasted = paste(white, scar)[0, 0, 32:].nonzero()
    assert abs(len(pasted) - 120) < 8
    slope = torch.linalg.eigh(torch.cov(pasted.T.float())).eigenvectors[:, 1]
    angle = math.degrees(math.atan2(slope[0], slope[1])) % 180
    assert abs(angle - 30) < 3
    assert pasted[:, 1].max() == 63  # the rotated box touches the border, no more


def test_brightness_scales_and_contrast_spreads_about_the_mean() -> None:
    image = ramp()
    bright = paste(image, cut(4.0, 4.0, (0.0, 0.0), (1.0, 1.0), brightness=0.5))
    torch.testing.assert_close(bright[..., 12:, 12:], image[..., :4, :4] / 2)
    strong = paste(image, cut(4.0, 4.0, (0.0, 0.0), (1.0, 1.0), contrast=0.5))[..., 12:, 12:]
    patch = image[..., :4, :4]
    torch.testing.assert_close(strong, patch.mean() + (patch - patch.mean()) / 2)
    clipped = paste(image + 0.5, cut(4.0, 4.0, (1.0, 1.0), (0.0, 0.0), brightness=1.1))
    assert clipped[..., :4, :4].max() == 1.0


def test_resnet18_has_the_published_size() -> None:
    """11,176,512 parameters with a coloured stem; this one is gray."""
    network = ResNet18()
    assert sum(p.numel() for p in network.parameters()) == 11_176_512 - 2 * 64 * 49
    assert network.channels == 512


def test_resnet18_maps_are_a_thirty_second_of_the_image() -> None:
    assert ResNet18(width=2)(torch.rand(2, 1, 64, 96)).shape == (2, 16, 2, 3)


def tiny(**settings: object) -> CutPaste:
    torch.manual_seed(0)
    return CutPaste(CutPasteConfig(width=2, head_width=4, **settings))


def test_draws_span_the_published_sizes() -> None:
    method = tiny(size=256)
    low, high = torch.zeros(1, 9), torch.ones(1, 9)
    for draws, area, aspect in ((low, 0.02, 0.3), (high, 0.15, 1 / 0.3)):
        cut = method._cut(draws)
        assert (cut.height * cut.width).item() == pytest.approx(area * 256**2, rel=0.03)
        assert (cut.width / cut.height).item() == pytest.approx(aspect, rel=0.05)
        assert cut.angle.item() == 0
    smallest, largest = method._scar(low), method._scar(high)
    assert (smallest.width.item(), smallest.height.item()) == (2, 10)
    assert (largest.width.item(), largest.height.item()) == (16, 25)
    assert math.degrees(smallest.angle.item()) == pytest.approx(-45)
    assert math.degrees(largest.angle.item()) == pytest.approx(45)
    assert (smallest.brightness.item(), largest.contrast.item()) == pytest.approx((0.9, 1.1))


def test_scars_shrink_with_the_image() -> None:
    assert tiny(size=128)._scar(torch.ones(1, 9)).width.item() == 8


@pytest.mark.parametrize("ways", [2, 3])
def test_views_are_whole_cut_and_scarred(ways: int) -> None:
    method = tiny(size=64, ways=ways)
    generator = torch.Generator().manual_seed(0)
    noise = {k: torch.rand(s.shape, generator=generator) for k, s in method.noise(4).items()}
    images = torch.rand(4, 1, 64, 64, generator=generator)
    batch = Batch(images, torch.arange(4), noise)
    views = method.views(batch)
    assert len(views) == ways
    assert torch.equal(views[0], images)
    changed = [(view != images).flatten(1).float().mean(1) for view in views[1:]]
    assert all(0.01 < share < 0.2 for share in changed[0])
    assert all(0 < share < 0.01 for share in changed[1:] for share in share)
    terms = method._loss(batch, {})
    assert terms["cross_entropy"].item() == pytest.approx(math.log(ways), abs=0.7)


def test_pasting_is_not_compiled() -> None:
    """As one kernel, pasted patches held pixels of other places."""
    (stage,) = CutPaste(CutPasteConfig()).stages()
    assert not any(objective.compilable for objective in stage.objectives)
