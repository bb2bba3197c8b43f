"""Several trainings of one method that score together, beyond what the contract tests."""

from pathlib import Path

import pytest
import torch

from squid import heatmaps
from squid.config import parse
from squid.data.folder import Folder
from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.inference.onnx import OnnxBackend, can_export, export_onnx
from squid.methods import build
from squid.methods.auto_encoder import AutoEncoder, AutoEncoderConfig
from squid.methods.base import Method
from squid.methods.ensemble import Ensemble
from squid.recipe import Recipe
from squid.run import Run
from squid.train import Engine, Monitor, TrainConfig, train

SMALL = {"name": "auto_encoder", "size": 32, "channels": (8, 8), "latent": 4, "epochs": 2}


def config(**more: object) -> AutoEncoderConfig:
    return AutoEncoderConfig.model_validate(SMALL | {"batch_size": 8} | more)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(24, 1, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def three(images: torch.Tensor) -> Method:
    torch.manual_seed(0)
    method = build(config(members=3))
    store = ImageStore((255 * images).to(torch.uint8), "cpu")
    engine, settings = Engine("cpu"), TrainConfig(augment=False)
    train(method, store, settings, seed=0, engine=engine, monitor=Monitor())
    return method


def test_one_member_is_the_method_itself() -> None:
    assert isinstance(build(config()), AutoEncoder)


def test_no_member_is_refused() -> None:
    with pytest.raises(ConfigError, match="members"):
        parse(AutoEncoderConfig, SMALL | {"members": 0}, "here")


def test_members_are_trained_in_turn_and_differ(three: Method) -> None:
    assert isinstance(three, Ensemble)
    assert [stage.name for stage in three.stages()] == ["train 1", "train 2", "train 3"]
    weights = [next(member.parameters()) for member in three.members]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


@torch.no_grad()
def test_scores_are_the_mean_of_standardised_members(three: Method, images: torch.Tensor) -> None:
    assert isinstance(three, Ensemble)
    pixels = (255 * images).to(torch.uint8).float() / 255
    single = torch.stack([member.score(pixels) for member in three.members], 1)  # (n, 3)
    standardised = (single - single.mean(0)) / single.std(0, correction=0)
    torch.testing.assert_close(three.score(pixels), standardised.mean(1), rtol=1e-3, atol=1e-3)
    reconstructions = torch.stack([member.reconstruct(pixels) for member in three.members])
    torch.testing.assert_close(three.reconstruct(pixels), reconstructions.mean(0))


def test_heatmaps_are_means_of_those_of_its_members(three: Method, images: torch.Tensor) -> None:
    assert heatmaps.kinds(three) == heatmaps.kinds(three.members[0])
    single = [heatmaps.heatmap(member, images[:2], "residual") for member in three.members]
    together = heatmaps.heatmap(three, images[:2], "residual")  # (2, 32, 32)
    torch.testing.assert_close(together, torch.stack(single).mean(0))


def test_heatmaps_of_discriminator_and_memory_average_all_members() -> None:
    settings = {"name": "squid", "size": 32, "width": 8, "depth": 3, "members": 2}
    method = build(Recipe(data=Folder(root=Path()), method=settings).method).eval()
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    for kind in ("gradcam", "memory"):
        single = [heatmaps.heatmap(member, images, kind) for member in method.members]
        assert not torch.allclose(*single)
        torch.testing.assert_close(heatmaps.heatmap(method, images, kind), sum(single) / 2)


def test_a_run_folder_holds_all_members(
    three: Method, images: torch.Tensor, tmp_path: Path
) -> None:
    recipe = Recipe(data=Folder(root=tmp_path), method=config(members=3))
    run = Run.create(tmp_path / "run", recipe)
    run.save_method(three)
    again = run.load_method()
    with torch.no_grad():
        torch.testing.assert_close(again.score(images), three.score(images))


def test_what_only_training_needs_is_left_out_of_the_model_file() -> None:
    recipe = {"name": "squid", "size": 32, "width": 8, "depth": 3, "members": 2}
    method = build(Recipe(data=Folder(root=Path()), method=recipe).method)
    alone = ("teacher.", "temporal_ensemble.")
    assert method.training_only == tuple(f"members.{i}.{part}" for i in (0, 1) for part in alone)


@pytest.mark.skipif(not can_export(), reason="onnx is not installed")
def test_is_exported_as_one_graph(three: Method, images: torch.Tensor, tmp_path: Path) -> None:
    export_onnx(three, tmp_path / "three.onnx", size=32)
    with torch.no_grad():
        expected = three.score(images)
    scores = OnnxBackend(tmp_path / "three.onnx").run(images)["score"]
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-3)
