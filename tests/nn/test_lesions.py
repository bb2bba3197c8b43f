"""Masks, tasks and targets of synthetic lesions."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from squid.nn.lesions import (
    RADIUS,
    TASKS,
    VISIBLE,
    add_lesions,
    jittered,
    lesion_examples,
    lesion_masks,
    lesion_noise,
)

SIDE, MANY = 32, 64
ALL = tuple(TASKS)


def clouds(b: int) -> Tensor:
    """(b, 1, side, side) smooth images in [0, 1]."""
    coarse = torch.rand(b, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")


def noise_for(b: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    make = {"uniform": torch.rand, "normal": torch.randn}
    specs = lesion_noise(b).items()
    return {name: make[spec.kind](spec.shape, generator=generator) for name, spec in specs}


# ------------------------------------------------------------------- the masks


def test_masks_are_feathered_ellipses_within_their_largest_area() -> None:
    masks = lesion_masks(noise_for(500), SIDE)
    assert masks.shape == (500, 1, SIDE, SIDE)
    assert masks.min() == 0
    assert masks.max() <= 1
    assert ((masks > 0.1) & (masks < 0.9)).any((1, 2, 3)).float().mean() > 0.9
    assert (masks > 0).float().mean((1, 2, 3)).max() <= 3 * torch.pi * RADIUS[1] ** 2


def test_an_ellipse_lies_where_its_draws_say() -> None:
    """The largest across and the smallest down, above the centre; then rotated by a quarter."""
    noise = {name: torch.zeros(2, *spec.shape[1:]) for name, spec in lesion_noise(2).items()}
    noise["ellipses"][:, 0] = torch.tensor([0.5, 0.4, 1.0, 0.0, 0.0])
    noise["ellipses"][1, 0, 4] = 0.5
    flat, upright = lesion_masks(noise, 100)[:, 0] > 0
    for mask, (wide, tall) in ((flat, RADIUS[::-1]), (upright, RADIUS)):
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        assert rows.float().mean().item() == pytest.approx(39.5, abs=0.1)
        assert columns.float().mean().item() == pytest.approx(49.5, abs=0.1)
        assert len(columns) == pytest.approx(200 * wide, abs=2)
        assert len(rows) == pytest.approx(200 * tall, abs=2)


def test_masks_have_one_two_or_three_ellipses_equally_often() -> None:
    noise = {name: torch.zeros(3, *spec.shape[1:]) for name, spec in lesion_noise(3).items()}
    noise["ellipses"][:] = torch.tensor(
        [[0.2, 0.2, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.8] * 2 + [0] * 3]
    )
    noise["number"][:, 0] = torch.tensor([0.3, 0.6, 0.9])
    masks = lesion_masks(noise, 100)[:, 0] > 0
    there = torch.stack([masks[:, place, place] for place in (20, 50, 80)], 1)
    assert there.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


# ------------------------------------------------------------------- the tasks


@pytest.mark.parametrize("task", ALL)
def test_a_task_changes_only_what_is_inside_its_mask(task: str) -> None:
    images, noise = clouds(MANY), noise_for(MANY)
    masks = lesion_masks(noise, SIDE)
    changed = TASKS[task](images, masks, noise)
    assert torch.equal(changed[masks == 0], images[masks == 0])
    assert changed.min() >= 0
    assert changed.max() <= 1
    visible = ((changed - images).abs() > VISIBLE).any((1, 2, 3))
    assert visible.float().mean() > 0.7


def test_the_same_place_of_another_image_is_mixed_in() -> None:
    images, noise = clouds(4), noise_for(4)
    masks = lesion_masks(noise, SIDE)
    weight = masks * (0.3 + 0.7 * noise["opacity"])[..., None, None]
    expected = (1 - weight) * images + weight * images[[3, 0, 1, 2]]
    assert_close(TASKS["same"](images, masks, noise), expected)


def test_a_quarter_of_opacities_is_darker() -> None:
    images, noise = torch.full((2, 1, SIDE, SIDE), 0.5), noise_for(2)
    noise["sign"][:, 0] = torch.tensor([0.24, 0.26])
    noise["strength"].fill_(1.0)
    noise["texture"].zero_()
    masks = lesion_masks(noise, SIDE)
    darker, brighter = TASKS["opacity"](images, masks, noise) - images
    assert_close(darker, -0.38 * masks[0])
    assert_close(brighter, 0.38 * masks[1])


@pytest.mark.parametrize("tasks", [ALL, ("warp",), ("opacity", "same")])
def test_a_quarter_is_untouched_and_the_rest_is_shared_equally(tasks: tuple) -> None:
    images, noise = clouds(MANY), noise_for(MANY)
    masks = lesion_masks(noise, SIDE)
    changed = add_lesions(images, noise, tasks)
    matches = {
        "none": (changed == images).all(3).all(2)[:, 0],
        **{t: (changed == TASKS[t](images, masks, noise)).all(3).all(2)[:, 0] for t in tasks},
    }
    n = len(tasks)
    for place in range(MANY):
        group = place % (4 * n)
        expected = "none" if group < n else tasks[(group - n) // 3]
        assert matches[expected][place]


def test_the_target_marks_what_changed_visibly() -> None:
    images = clouds(MANY)
    changed, target = lesion_examples(images, noise_for(MANY), ALL)
    difference = (changed - images).abs()
    assert torch.equal(target == 1, difference > VISIBLE)
    assert torch.equal(target == 0, difference <= VISIBLE)
    untouched = torch.arange(MANY) % 16 < 4
    assert not target[untouched].any()
    assert torch.equal(changed[untouched], images[untouched])
    assert target[~untouched].any((1, 2, 3)).float().mean() > 0.7


def test_jitter_changes_contrast_about_the_middle_and_brightness() -> None:
    images = torch.tensor([0.3, 0.5, 0.7]).view(1, 1, 1, 3).repeat(2, 1, 1, 1)
    draws = torch.tensor([[1.0, 0.5], [0.5, 0.0]])  # the most contrast; the least brightness
    more, darker = jittered(images, {"jitter": draws}, 0.2)[:, 0, 0]
    assert_close(more, torch.tensor([0.26, 0.5, 0.74]))
    assert_close(darker, torch.tensor([0.1, 0.3, 0.5]))
