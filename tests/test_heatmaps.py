import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from squid.errors import ConfigError
from squid.heatmaps import HEATMAPS, heatmap, kinds, overlay, shared_scale
from squid.methods.base import Method, MethodConfig
from squid.methods.squid import Squid
from squid.methods.squid.config import SquidConfig
from squid.nn.discriminator import Discriminator


class Halver(Method):
    """Reconstructs everything at half its brightness."""

    config = MethodConfig(name="halver")

    def reconstruct(self, images: Tensor) -> Tensor:
        return images / 2


class Everything(Halver):
    def __init__(self) -> None:
        super().__init__()
        self.discriminator = Discriminator(8, width=2)
        self.scale = nn.Parameter(torch.ones(()))

    def heatmap(self, images: Tensor) -> Tensor:
        return self.scale * images[:, 0]

    def memory_distance(self, images: Tensor) -> Tensor:
        return F.avg_pool2d(images, 4)[:, 0]


def _images(b=3):
    return torch.rand(b, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", HEATMAPS)
def test_maps_do_not_depend_on_the_batch_nor_on_the_callers_gradient_mode(kind):
    method, images = Everything().eval(), _images()
    maps = heatmap(method, images, kind)
    assert maps.shape == (3, 8, 8)
    assert not maps.requires_grad
    with torch.no_grad():
        alone = torch.cat([heatmap(method, image[None], kind) for image in images])
    torch.testing.assert_close(alone, maps)


@pytest.mark.parametrize("kind", HEATMAPS)
def test_explaining_changes_nothing(kind):
    method, images = Everything().eval(), _images()
    before = images.clone()
    heatmap(method, images, kind)
    assert torch.equal(images, before)
    assert not images.requires_grad
    assert method.scale.grad is None
    assert not method.training


def _discriminator_against_bright_spots(size=16):
    """Two levels; channel 0 carries the mean brightness, which lowers the logit."""
    discriminator = Discriminator(size, width=2)
    for parameter in discriminator.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        for level in discriminator.levels:
            level.conv.weight[0, 0] = 1.0
            if level.norm is not None:
                level.norm.weight[:] = 1.0
        discriminator.head.weight.view(-1, 4, 4)[0] = -1.0
    return discriminator


@pytest.mark.parametrize("layer", [-1, 0])
def test_gradcam_finds_what_makes_an_image_anomalous(layer):
    method, images = Everything(), torch.zeros(1, 1, 16, 16)
    images[:, :, 10:14, 2:6] = 1.0
    method.discriminator = discriminator = _discriminator_against_bright_spots()
    (found,) = heatmap(method, images, "gradcam", layer=layer)
    row, column = divmod(int(found.argmax()), 16)
    assert 9 <= row < 15
    assert 1 <= column < 7
    assert found.min() >= 0
    nn.init.constant_(discriminator.head.weight, 0.0)
    discriminator.head.weight.data.view(-1, 4, 4)[0] = 1.0  # now the spot raises the logit
    assert heatmap(method, images, "gradcam", layer=-1)[0, 11:13, 3:5].max() == 0


def test_gradcam_of_the_last_level_is_its_formula():
    method, images = Everything().eval(), _images()
    discriminator = method.discriminator
    features = discriminator.features(method.reconstruct(images), "image")
    weights = -discriminator.head.weight.view(1, -1, 4, 4).mean((2, 3), keepdim=True)
    expected = F.relu((weights * features).sum(1, keepdim=True)).detach()
    expected = F.interpolate(expected, (8, 8), mode="bilinear")[:, 0]
    torch.testing.assert_close(heatmap(method, images, "gradcam"), expected)


def test_gradcam_names_a_layer_that_is_not_there():
    with pytest.raises(ConfigError, match="no layer 7: the discriminator has 1 levels"):
        heatmap(Everything(), _images(), "gradcam", layer=7)


def test_residual_and_its_smoothing():
    images = torch.zeros(1, 1, 9, 9)
    images[0, 0, 4, 4] = 1.0
    sharp = heatmap(Halver(), images, "residual")
    assert torch.equal(sharp, images[:, 0] / 2)
    soft = heatmap(Halver(), images, "residual", sigma=1.0)
    assert soft.sum().item() == pytest.approx(0.5, rel=1e-5)
    assert 0 < soft[0, 4, 5] < soft[0, 4, 4] < 0.5
    torch.testing.assert_close(soft, soft.transpose(1, 2))
    flat = torch.full((1, 1, 8, 8), 0.5)
    torch.testing.assert_close(heatmap(Halver(), flat, "residual", sigma=9.0), flat[:, 0] / 2)


def test_memory_distance_gives_one_value_per_patch():
    images = _images()
    maps = heatmap(Everything(), images, "memory")
    patches = F.avg_pool2d(images, 4)[:, 0]
    assert torch.equal(maps, patches.repeat_interleave(4, 1).repeat_interleave(4, 2))


@pytest.mark.parametrize("inpainting", ["feature", "none"])
def test_squid_can_give_what_it_was_built_with(inpainting):
    config = SquidConfig(size=32, width=4, depth=2, slots=8, matrix_slots=8, inpainting=inpainting)
    squid = Squid(config).eval()
    assert ("memory" in kinds(squid)) == (inpainting == "feature")
    assert {"gradcam", "residual"} <= set(kinds(squid))
    images = torch.rand(2, 1, 32, 32)
    maps = {kind: heatmap(squid, images, kind) for kind in kinds(squid)}
    assert all(heat.shape == (2, 32, 32) and heat.isfinite().all() for heat in maps.values())


def test_only_heatmaps_that_a_method_can_give_are_offered():
    assert kinds(Everything()) == ("method", "gradcam", "residual", "memory")
    assert kinds(Halver()) == ("residual",)
    assert kinds(Method()) == ()
    with pytest.raises(ConfigError, match=r"Halver .* 'gradcam'; it can give: residual"):
        heatmap(Halver(), _images(), "gradcam")
    with pytest.raises(ConfigError, match="none"):
        heatmap(Method(), _images(), "nonsense")


def test_overlay_leaves_cold_pixels_and_colours_hot_ones():
    image, heat = torch.full((1, 4, 4), 0.5), np.zeros((4, 4))
    heat[0, 0] = 2.0
    picture = overlay(image, heat)
    assert picture.shape == (4, 4, 3)
    assert picture.dtype == np.uint8
    assert (picture[1:] == 128).all()
    assert len(set(picture[0, 0].tolist())) == 3


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (4, 1)])
def test_an_overlay_has_the_size_of_its_image(size: tuple[int, int]) -> None:
    assert overlay(torch.zeros(1, *size), np.ones(size)).shape == (*size, 3)


def test_overlays_on_one_scale_compare():
    image, heats = np.zeros((4, 4)), [np.full((4, 4), 1.0), np.full((4, 4), 2.0)]
    scale = shared_scale([np.zeros((4, 4))] * 3 + heats, top=1.0)
    assert scale == (0.0, 2.0)
    weak, strong = (overlay(image, heat, scale=scale) for heat in heats)
    assert weak.sum() < strong.sum()
    assert (overlay(image, heats[0]) == 0).all()  # nothing stands out on its own scale
    assert (overlay(image, 5 * heats[1], scale=scale) == strong).all()


def test_half_of_all_pixels_keep_their_gray():
    """So a heatmap that is high everywhere does not look like a finding everywhere."""
    image, heat = np.full((8, 8), 0.5), 5.0 + np.arange(64.0).reshape(8, 8)
    picture = overlay(image, heat, scale=shared_scale([heat]))
    assert (picture[:4] == 128).all()
    assert (picture[5:] != 128).any(-1).all()
