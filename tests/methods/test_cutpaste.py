"""What only CutPaste has: the patches that its draws ask for."""

import math

import pytest
import torch

from squid.methods.base import Batch
from squid.methods.cutpaste import CutPaste, CutPasteConfig


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


def test_what_the_compiler_gets_wrong_is_not_compiled() -> None:
    """As one kernel, pasted patches held pixels of other places."""
    (stage,) = CutPaste(CutPasteConfig()).stages()
    assert not any(objective.compilable for objective in stage.objectives)
