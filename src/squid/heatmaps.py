"""Where an image looks anomalous: heatmaps (b, h, w), higher = more anomalous, and their overlays.

Nothing here changes a method, and each image is explained on its own, whatever its batch.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from squid.errors import ConfigError
from squid.methods.base import Method
from squid.methods.ensemble import Ensemble
from squid.methods.fusion import Fusion
from squid.nn.blur import gaussian_blur
from squid.nn.discriminator import Discriminator


def gradcam(method: Method, images: Tensor, *, layer: int = -1) -> Tensor:
    """Grad-CAM (Selvaraju et al., 2017) of the discriminator, as in the paper's figures.

    The discriminator sees the reconstruction, normalised by the image's own statistics. Channels of
    the chosen level (-1: the last) are weighted by how much they lower its logit: what remains is
    evidence for 'reconstructed', which counts as 'anomalous'.
    """
    if not isinstance(discriminator := getattr(method, "discriminator", None), Discriminator):
        raise _cannot(method, "gradcam")
    below, above = _cut(discriminator, layer)
    features = _through(below, _reconstruction(method, images))  # (b, c, h', w')
    # Gradients are needed above the features only, also where the caller has switched them off.
    with torch.enable_grad():
        features = features.detach().requires_grad_()
        logits = discriminator.classify(_through(above, features))
        (gradient,) = torch.autograd.grad(-logits.sum(), features)
    # One weight per channel; negative sums are evidence for a real image and are cut off.
    weights = gradient.mean((2, 3), keepdim=True)
    maps = F.relu((weights * features.detach()).sum(1))  # (b, h', w')
    return _resized(maps, images, "bilinear")


def residual(method: Method, images: Tensor, *, sigma: float = 0.0) -> Tensor:
    """|image - reconstruction|, blurred by a Gaussian of `sigma` pixels when that is positive."""
    maps = (images - _reconstruction(method, images)).abs().mean(1)  # (b, h, w)
    return gaussian_blur(maps, sigma) if sigma > 0 else maps


def memory(method: Method, images: Tensor) -> Tensor:
    """Distance of each patch to its memory: one value per patch, so enlarged without smoothing."""
    distance: Any = method.memory_distance
    return _resized(distance(images), images, "nearest-exact")


def own(method: Method, images: Tensor) -> Tensor:
    """The method's own heatmap."""
    maps = method.heatmap(images)
    if maps is None:
        raise _cannot(method, "method")
    return maps


HEATMAPS: dict[str, Callable[..., Tensor]] = {
    "method": own,
    "gradcam": gradcam,
    "residual": residual,
    "memory": memory,
}


def kinds(method: Method) -> tuple[str, ...]:
    """The heatmaps that a method can give, its own first; a fusion those that any part can give."""
    if isinstance(method, Fusion):
        offered = {kind for part in method.members for kind in kinds(part)}
        return tuple(kind for kind in HEATMAPS if kind in offered)
    if isinstance(method, Ensemble):  # its members are of one method
        return kinds(method.members[0])
    reconstructs = _overrides(method, "reconstruct")
    discriminates = isinstance(getattr(method, "discriminator", None), Discriminator)
    able = {
        "gradcam": reconstructs and discriminates,
        "residual": reconstructs,
        "memory": _remembers(method),
        "method": _overrides(method, "heatmap"),
    }
    return tuple(kind for kind in HEATMAPS if able[kind])


def heatmap(method: Method, images: Tensor, kind: str, **options: Any) -> Tensor:
    """(b, 1, h, w) -> (b, h, w): the heatmap of a kind in `HEATMAPS`, whose function takes the
    options. An ensemble gives the mean of its members' heatmaps. A fusion has one of its own; of
    any other kind it gives that of the first part that has one, as units differ between parts."""
    if kind not in kinds(method):
        raise _cannot(method, kind)
    if not isinstance(method, Ensemble) or (isinstance(method, Fusion) and kind == "method"):
        with torch.no_grad():
            return HEATMAPS[kind](method, images, **options).detach()
    members = method.members
    if isinstance(method, Fusion):
        members = [next(part for part in members if kind in kinds(part))]
    maps = [heatmap(one, one.prepare(images), kind, **options) for one in members]
    return torch.stack(maps).mean(0)


def shared_scale(
    heatmaps: Iterable[Tensor | NDArray[Any]], top: float = 0.999
) -> tuple[float, float]:
    """One scale for several heatmaps: from their median, so that half of all pixels keep their
    gray, to the quantile `top`, so that a few extreme pixels do not darken the rest."""
    values = np.concatenate([np.asarray(heatmap, dtype=np.float64).ravel() for heatmap in heatmaps])
    return float(np.median(values)), float(np.quantile(values, top))


def overlay(
    image: Tensor | NDArray[Any],
    heatmap: Tensor | NDArray[Any],
    *,
    scale: tuple[float, float] | None = None,
    opacity: float = 0.7,
    colormap: str = "plasma",
) -> NDArray[np.uint8]:
    """One image (h, w) in [0, 1] under its heatmap, as RGB (h, w, 3).

    The higher a value, the less transparent its colour. `scale` (the values of no and of full
    colour) defaults to this heatmap's own range; give several images one scale to compare them.
    """
    gray, heat = _plane(image).clip(0, 1), _plane(heatmap)
    # A flat heatmap has no range: nothing stands out in it, so it gets no colour.
    low, high = scale if scale is not None else (heat.min(), heat.max())
    strength = ((heat - low) / max(high - low, np.finfo(np.float64).tiny)).clip(0, 1)
    colour = colormaps[colormap](strength)[..., :3]  # (h, w, 3)
    alpha = opacity * strength[..., None]
    blend: NDArray[np.float64] = (1 - alpha) * gray[..., None] + alpha * colour
    return np.rint(255 * blend).astype(np.uint8)


def _plane(values: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    """(h, w), also of (1, h, w); a side of one pixel stays a side."""
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(array.shape[-2:])


def _cut(discriminator: Discriminator, layer: int) -> tuple[list[nn.Module], list[nn.Module]]:
    """The levels up to and including `layer`, and those after it."""
    levels = list(discriminator.levels)
    if not -len(levels) <= layer < len(levels):
        raise ConfigError(f"There is no layer {layer}: the discriminator has {len(levels)} levels.")
    cut = layer % len(levels) + 1
    return levels[:cut], levels[cut:]


def _through(levels: list[nn.Module], x: Tensor) -> Tensor:
    for level in levels:
        x = level(x, "image")
    return x


def _reconstruction(method: Method, images: Tensor) -> Tensor:
    reconstruction = method.reconstruct(images)
    if reconstruction is None:
        raise _cannot(method, "residual")
    return reconstruction


def _resized(maps: Tensor, images: Tensor, mode: str) -> Tensor:
    return F.interpolate(maps[:, None], images.shape[-2:], mode=mode)[:, 0]  # (b, h, w)


def _remembers(method: Method) -> bool:
    # SQUID has the function always, but a memory only with the in-painting block.
    inpainting = getattr(method, "inpainting", method)
    return hasattr(method, "memory_distance") and inpainting is not None


def _overrides(method: Method, name: str) -> bool:
    return getattr(type(method), name) is not getattr(Method, name)


def _cannot(method: Method, kind: str) -> ConfigError:
    able = ", ".join(kinds(method)) or "none"
    return ConfigError(
        f"{type(method).__name__} has no heatmap of the kind '{kind}'; it can give: {able}."
    )
