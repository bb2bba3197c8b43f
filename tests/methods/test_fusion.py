"""Different methods that score together, and preprocessing of each part."""

from pathlib import Path

import pytest
import torch

from squid.config import parse
from squid.data.folder import Folder
from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.heatmaps import heatmap, kinds
from squid.methods import build
from squid.methods.base import Batch, Method
from squid.methods.fusion import Fusion, FusionConfig
from squid.nn.preprocess import equalise
from squid.recipe import radiograph_recipe, read_recipe
from squid.train import Engine, Monitor, TrainConfig, train

AUTO = {"name": "auto_encoder", "channels": [8, 8], "latent": 4, "epochs": 1, "batch_size": 8}
LESIONS = {"name": "synthetic_lesions", "channels": [8, 8], "epochs": 1, "batch_size": 8}
PARTS = [AUTO | {"preprocess": ["equalise"], "members": 2}, LESIONS]


def config(parts: list[dict[str, object]], **more: object) -> FusionConfig:
    return parse(FusionConfig, {"name": "fusion", "size": 32, "parts": parts, **more}, "here")


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(24, 1, 32, 32, generator=torch.Generator().manual_seed(0)) ** 2


@pytest.fixture(scope="module")
def trained(images: torch.Tensor) -> Fusion:
    torch.manual_seed(0)
    method = build(config(PARTS))
    assert isinstance(method, Fusion)
    store = ImageStore((255 * images).to(torch.uint8), "cpu")
    settings = TrainConfig(augment=False)
    train(method, store, settings, seed=0, engine=Engine("cpu"), monitor=Monitor())
    return method.eval()


def test_parts_have_the_size_of_the_whole() -> None:
    method = build(config(PARTS))
    assert isinstance(method, Fusion)
    assert method.members[1].config.size == 32  # type: ignore[union-attr]


def test_every_part_is_trained_with_its_own_noise(trained: Fusion) -> None:
    names = [stage.name for stage in trained.stages()]
    assert names == ["train 1 1", "train 2 1", "train 2"]
    members = [stage.member for stage in trained.stages()]
    assert "ellipses" in members[2].noise(4)  # type: ignore[union-attr]
    assert not members[0].noise(4)  # type: ignore[union-attr]


@torch.no_grad()
def test_the_score_is_the_mean_of_standardised_scores(
    trained: Fusion, images: torch.Tensor
) -> None:
    pixels = (255 * images).to(torch.uint8).float() / 255
    scores = [member.score(member.prepare(pixels)) for member in trained.members]
    standard = [(one - one.mean()) / one.std(correction=0) for one in scores]
    expected = torch.stack(standard).mean(0)
    torch.testing.assert_close(trained.score(pixels), expected, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_only_the_part_that_asks_for_it_is_preprocessed(images: torch.Tensor) -> None:
    method = build(config([AUTO | {"preprocess": ["equalise"]}, LESIONS]))
    assert isinstance(method, Fusion)
    first, second = method.members
    assert torch.equal(method.prepare(images), images)
    assert torch.equal(first.prepare(images), equalise(images))
    assert torch.equal(second.prepare(images), images)


def test_training_sees_prepared_images(images: torch.Tensor) -> None:
    seen: list[torch.Tensor] = []
    method = build(parse_auto(preprocess=["equalise"]))
    loss = type(method).loss

    def spied(self: Method, batch: Batch, shared: object) -> object:
        seen.append(batch.images)
        return loss(self, batch, shared)  # type: ignore[arg-type]

    method.loss = spied.__get__(method)
    store = ImageStore((255 * images).to(torch.uint8), "cpu")
    engine = Engine("cpu")
    train(method, store, TrainConfig(augment=False), seed=0, engine=engine, monitor=Monitor())
    assert seen
    for batch in seen:
        torch.testing.assert_close(batch, equalise(batch), atol=5e-3, rtol=0)  # already uniform


def parse_auto(**more: object) -> object:
    from squid.methods.auto_encoder import AutoEncoderConfig

    return parse(AutoEncoderConfig, {**AUTO, "size": 32, **more}, "here")


@torch.no_grad()
def test_the_heatmap_is_in_units_of_healthy_pixels(trained: Fusion, images: torch.Tensor) -> None:
    assert kinds(trained) == ("method", "residual")
    maps = heatmap(trained, images, "method")
    assert maps.shape == (24, 32, 32)
    assert maps.mean().abs() < 0.1
    assert trained.reconstruct(images) is not None


def squid_part(**more: object) -> dict[str, object]:
    return {"name": "squid", "width": 4, "depth": 2, "slots": 8, "matrix_slots": 8, **more}


def test_a_heatmap_that_any_part_has_is_offered(images: torch.Tensor) -> None:
    """Whichever part is the first; another kind than its own is that of the first that has it."""
    parts = [LESIONS, squid_part(preprocess=["equalise"])]
    for listed in (parts, parts[::-1]):
        fusion = build(config(listed)).eval()
        assert isinstance(fusion, Fusion)
        assert kinds(fusion) == ("method", "gradcam", "residual", "memory")
        squid = fusion.members[listed.index(parts[1])]
        for kind in ("gradcam", "residual", "memory"):
            expected = heatmap(squid, equalise(images[:2]), kind)
            torch.testing.assert_close(heatmap(fusion, images[:2], kind), expected)


def test_what_no_part_has_is_not_offered(images: torch.Tensor) -> None:
    fusion = build(config([LESIONS, LESIONS])).eval()
    assert kinds(fusion) == ("method",)
    assert heatmap(fusion, images[:2], "method").shape == (2, 32, 32)
    with pytest.raises(ConfigError, match=r"Fusion has no heatmap of the kind 'residual'"):
        heatmap(fusion, images[:2], "residual")


def test_unknown_parts_and_single_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no method 'squit'; did you mean 'squid'"):
        config([AUTO, {"name": "squit"}])
    with pytest.raises(ConfigError, match="parts"):
        config([AUTO])


def test_a_part_that_fits_images_counts_wherever_it_stands() -> None:
    parts = [AUTO, {"name": "if2d"}]
    assert [build(config(listed)).fits_images for listed in (parts, parts[::-1], PARTS)] == [
        True, True, False,
    ]  # fmt: skip


def test_preprocessing_of_the_whole_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'\["equalise"\] of the whole .* each of its parts\.'):
        config([AUTO, LESIONS], preprocess=["equalise"])


def test_a_recipe_with_parts_survives_being_written(tmp_path: Path) -> None:
    path = tmp_path / "fusion.toml"
    path.write_text(
        '[data]\nname = "digitanatomy"\n[method]\nname = "fusion"\nparts = [\n'
        '  { name = "ae_u", preprocess = ["equalise"], members = 2 },\n'
        '  { name = "synthetic_lesions" },\n]\n'
    )
    recipe = read_recipe(path)
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert read_recipe(tmp_path / "again.toml") == recipe


def test_the_default_for_radiographs_has_a_smaller_form_for_a_cpu() -> None:
    data = Folder(root=Path("images"))
    large, small = (radiograph_recipe(data, small=one) for one in (False, True))
    assert (large.method.size, small.method.size) == (128, 64)
    assert small.train.precision == "float32", "bf16 is slower on most CPUs"
    weights = [sum(p.numel() for p in build(one.method).parameters()) for one in (large, small)]
    assert weights[1] < weights[0] / 2
    parts = small.with_settings(["method.size=96"]).method.parts  # type: ignore[attr-defined]
    assert [part.size for part in parts] == [96, 96, 96]
