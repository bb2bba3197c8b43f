"""Lesions synthesised on healthy images: masks, and what is done within them.

The tasks are those of FPI (Tan et al., 2020, arXiv:2011.04197), PII (Tan et al., 2021,
arXiv:2107.02622), NSA (Schlüter et al., ECCV 2022, arXiv:2109.15222), CutPaste (Li et al., CVPR
2021, arXiv:2104.04015), DRAEM (Zavrtanik et al., ICCV 2021, arXiv:2108.07610) and AnatPaste (Sato
et al., iScience 2023, arXiv:2205.04282), in a form of our own.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from squid.nn.noise import NoiseSpec

Task = Literal["paste", "same", "opacity", "warp"]
Noise = Mapping[str, Tensor]

ELLIPSES = 3
"""Most ellipses of a mask."""
RADIUS = (0.03, 0.28)
"""Range of both radii of an ellipse, as shares of the side."""
EDGE = (0.1, 1.0)
"""Range of the width of a feathered border, as a share of the radius."""
OPACITY = (0.3, 1.0)
"""Range of the weight with which another image covers this one."""
STRENGTH = (0.08, 0.38)
"""Range of the brightness that an opacity adds."""
DARKER = 0.25
"""Share of opacities that subtract it."""
SHIFT, SCALE = 0.5, (0.7, 1.4)
"""Farthest place in either direction and range of scales of what is pasted, in sides."""
BEND = (0.02, 0.10)
"""Range of the standard deviation of a displacement, as a share of the side."""
COARSE = 8
"""Cells a side of the grids from which texture and displacements are interpolated."""
VISIBLE = 0.04
"""Least change of a pixel that the network has to find."""


# ------------------------------------------------------------------- the masks


def lesion_noise(b: int) -> dict[str, NoiseSpec]:
    """The draws for `b` masks, for every task, whichever of them an image gets, and for the
    jitter."""
    uniform: dict[str, tuple[int, ...]] = {
        "ellipses": (b, ELLIPSES, 5),  # x, y, both radii, angle
        "edge": (b, 1),
        "number": (b, 1),
        "place": (b, 2),  # x, y
        "scale": (b, 1),
        "opacity": (b, 1),
        "strength": (b, 1),
        "sign": (b, 1),
        "bend": (b, 1),
        "jitter": (b, 2),  # contrast, brightness
    }
    specs = {name: NoiseSpec(shape, "uniform") for name, shape in uniform.items()}
    specs["texture"] = NoiseSpec((b, 1, COARSE, COARSE), "normal")
    specs["displacement"] = NoiseSpec((b, 2, COARSE, COARSE), "normal")
    return specs


def lesion_masks(noise: Noise, side: int) -> Tensor:
    """(b, 1, side, side) in [0, 1]: one to three rotated ellipses, zero outside and rising to one
    over their feathered borders."""
    x, y, wide, tall, angle = noise["ellipses"][..., None, None].unbind(2)  # each (b, n, 1, 1)
    across, down = (coordinates(side, x) / 2).unbind(-1)  # (side, side), from -0.5 to 0.5
    across, down = across - (x - 0.5), down - (y - 0.5)  # (b, n, side, side)
    cos, sin = (torch.pi * angle).cos(), (torch.pi * angle).sin()
    first = (cos * across + sin * down) / _between(RADIUS, wide)
    second = (cos * down - sin * across) / _between(RADIUS, tall)
    depth = 1 - (first.square() + second.square()).sqrt()  # 1 in the centre, 0 on the border
    edge = (depth / _between(EDGE, noise["edge"][..., None, None])).clamp(0, 1)
    # A smooth step: its slope is zero at both ends, so that the border shows no crease.
    feathered = edge.square() * (3 - 2 * edge)
    # The first ellipse is always there, the others in two and in one of three masks.
    there = torch.arange(ELLIPSES, device=x.device) <= ELLIPSES * noise["number"]  # (b, n)
    return (feathered * there[..., None, None]).amax(1, keepdim=True)


def placed(noise: Noise, places: Callable[[Tensor], Tensor]) -> Noise:
    """The draws with other centres of the ellipses: `places` gives (..., 2) x and y from uniform
    draws."""
    ellipses = noise["ellipses"]
    centres = places(ellipses[..., :2])
    return {**noise, "ellipses": torch.cat((centres, ellipses[..., 2:]), -1)}


def coordinates(side: int, like: Tensor) -> Tensor:
    """(side, side, 2): the centre of each pixel as (x, y) from -1 to 1, as `grid_sample` has it."""
    line = (torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) * (2 / side) - 1
    down, across = torch.meshgrid(line, line, indexing="ij")
    return torch.stack((across, down), -1)


# ------------------------------------------------------------------- the tasks


def paste(images: Tensor, masks: Tensor, noise: Noise) -> Tensor:
    """Another place of another image, at another scale."""
    shift = 2 * _between((-SHIFT, SHIFT), noise["place"])  # (b, 2)
    grid = coordinates(images.shape[-1], images) * _per_image(_between(SCALE, noise["scale"]))
    moved = _sample(images.roll(1, 0), grid + rearrange(shift, "b two -> b 1 1 two"))
    return _cover(images, moved, masks, noise)


def paste_same_place(images: Tensor, masks: Tensor, noise: Noise) -> Tensor:
    """The same place of another image."""
    return _cover(images, images.roll(1, 0), masks, noise)


def add_opacity(images: Tensor, masks: Tensor, noise: Noise) -> Tensor:
    """A brighter or darker blob with a coarse texture."""
    strength = _between(STRENGTH, noise["strength"])
    signed = torch.where(noise["sign"] < DARKER, -strength, strength)
    texture = 1 + 0.5 * _enlarged(noise["texture"], images)
    return (images + masks * _per_image(signed) * texture).clamp(0, 1)


def warp(images: Tensor, masks: Tensor, noise: Noise) -> Tensor:
    """A smooth deformation, which fades out towards the border of the mask."""
    # A coarse grid, interpolated, bends smoothly; the mask lets it fade out.
    displacement = _enlarged(noise["displacement"], images) * masks  # (b, 2, h, w)
    size = 2 * _per_image(_between(BEND, noise["bend"]))
    grid = coordinates(images.shape[-1], images) + size * displacement.movedim(1, -1)
    return torch.where(masks > 0, _sample(images, grid), images)


TASKS: dict[Task, Callable[[Tensor, Tensor, Noise], Tensor]] = {
    "paste": paste,
    "same": paste_same_place,
    "opacity": add_opacity,
    "warp": warp,
}
"""(b, 1, h, w) images and masks -> (b, 1, h, w), changed only where the mask is positive."""


def add_lesions(images: Tensor, noise: Noise, tasks: tuple[Task, ...]) -> Tensor:
    """(b, 1, h, w) -> (b, 1, h, w): a quarter of the images as they are, the rest with lesions of
    each task in turn."""
    masks = lesion_masks(noise, images.shape[-1])
    # The place in the batch decides: images come in random order, and so the shares are exact. Of
    # every 4n places the first n get a negative number (no task), each of the n tasks gets three.
    place = torch.arange(len(images), device=images.device) % (4 * len(tasks))
    numbers = _per_image((place - len(tasks)) // 3)
    # Every task is computed for the whole batch and taken where it is due: shapes stay fixed.
    changed = images
    for number, task in enumerate(tasks):
        changed = torch.where(numbers == number, TASKS[task](images, masks, noise), changed)
    return changed


def lesion_examples(images: Tensor, noise: Noise, tasks: tuple[Task, ...]) -> tuple[Tensor, Tensor]:
    """Images with lesions, and one where they differ visibly from before; both (b, 1, h, w)."""
    changed = add_lesions(images, noise, tasks)
    return changed, ((changed - images).abs() > VISIBLE).to(changed.dtype)


def jittered(images: Tensor, noise: Noise, most: float) -> Tensor:
    """Images (b, c, h, w) with another contrast and brightness, by up to `most`.

    Absolute gray levels must not give a lesion away: exposure differs between radiographs.
    """
    contrast, brightness = _between((-most, most), noise["jitter"]).unbind(1)
    return (images - 0.5) * _per_image(1 + contrast) + _per_image(0.5 + brightness)


def _cover(images: Tensor, others: Tensor, masks: Tensor, noise: Noise) -> Tensor:
    """The other images laid over these within the masks, at a random opacity."""
    return images.lerp(others, masks * _per_image(_between(OPACITY, noise["opacity"])))


def _sample(images: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _enlarged(grids: Tensor, images: Tensor) -> Tensor:
    return F.interpolate(grids, images.shape[-2:], mode="bilinear", align_corners=False)


def _per_image(values: Tensor) -> Tensor:
    """(b, 1) or (b,) -> (b, 1, 1, 1)."""
    return values.view(-1, 1, 1, 1)


def _between(limits: tuple[float, float], draws: Tensor) -> Tensor:
    low, high = limits
    return low + (high - low) * draws
