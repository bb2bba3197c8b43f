"""Where a patch comes from, where it goes, how it is turned and changed."""

import math

import torch

from squid.nn.pasting import Cut, paste

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


def test_a_quarter_turn_turns_the_patch() -> None:
    image = ramp()
    turn = cut(2.0, 6.0, (0.0, 0.0), (1.0, 1.0), angle=math.pi / 2 - 1e-4)
    changed = paste(image, turn)[0, 0, 10:, 14:]  # now six high and two wide
    torch.testing.assert_close(changed, torch.rot90(image[0, 0, :2, :6], -1))


def test_a_turned_patch_stays_inside_and_keeps_its_area() -> None:
    white = torch.zeros(1, 1, 64, 64)
    white[..., :32, :] = 1.0
    scar = cut(6.0, 20.0, (0.0, 0.0), (1.0, 1.0), angle=math.radians(30))
    pasted = paste(white, scar)[0, 0, 32:].nonzero()
    assert abs(len(pasted) - 120) < 8
    slope = torch.linalg.eigh(torch.cov(pasted.T.float())).eigenvectors[:, 1]
    angle = math.degrees(math.atan2(slope[0], slope[1])) % 180
    assert abs(angle - 30) < 3
    assert pasted[:, 1].max() == 63  # the turned box touches the border, no more


def test_brightness_scales_and_contrast_spreads_about_the_mean() -> None:
    image = ramp()
    bright = paste(image, cut(4.0, 4.0, (0.0, 0.0), (1.0, 1.0), brightness=0.5))
    torch.testing.assert_close(bright[..., 12:, 12:], image[..., :4, :4] / 2)
    strong = paste(image, cut(4.0, 4.0, (0.0, 0.0), (1.0, 1.0), contrast=0.5))[..., 12:, 12:]
    patch = image[..., :4, :4]
    torch.testing.assert_close(strong, patch.mean() + (patch - patch.mean()) / 2)
    clipped = paste(image + 0.5, cut(4.0, 4.0, (1.0, 1.0), (0.0, 0.0), brightness=1.1))
    assert clipped[..., :4, :4].max() == 1.0
