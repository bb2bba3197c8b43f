"""Backbones: the published VGG16 from its file, errors without it, timm by name."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from squid.errors import ConfigError
from squid.nn.backbone import Backbone, BackboneConfig, build_backbone, pooled


@pytest.fixture
def weights(shared: Callable[..., Path]) -> str:
    return str(shared("weights", "vgg16_features_imagenet_fp16.safetensors"))


def waves(side: int) -> torch.Tensor:
    y, x = torch.meshgrid(*2 * [torch.linspace(0, 1, side)], indexing="ij")
    return (0.5 + 0.5 * torch.sin(6 * x) * torch.cos(9 * y))[None, None]


def test_published_weights_give_their_known_activations(weights: str) -> None:
    backbone = build_backbone(BackboneConfig(weights=weights))
    backbone.read_weights()
    with torch.no_grad():
        maps = backbone(waves(64))
    assert backbone.pretrained
    assert [tuple(m.shape[1:]) for m in maps] == [
        (channels, 32 // 2**i, 32 // 2**i) for i, channels in enumerate(backbone.channels)
    ]
    means = [m.mean().item() for m in maps]
    assert means == pytest.approx([0.47637, 1.16209, 2.35802, 0.94144, 0.25476], rel=1e-3)


def test_first_blocks_alone_are_the_same_maps() -> None:
    backbone = build_backbone(BackboneConfig())
    whole, part = backbone(waves(32)), backbone(waves(32), blocks=2)
    assert len(part) == 2
    assert torch.equal(whole[1], part[1])


def test_normalisation_is_that_of_imagenet() -> None:
    torch.manual_seed(0)
    normal = build_backbone(BackboneConfig())
    plain = build_backbone(BackboneConfig(), normalize=False)
    plain.load_state_dict(normal.state_dict())
    inputs: list[torch.Tensor] = []
    for backbone in (normal, plain):
        backbone.features[0].register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
        backbone(torch.full((1, 1, 32, 32), 0.485), blocks=1)
    expected = torch.tensor([0.0, (0.485 - 0.456) / 0.224, (0.485 - 0.406) / 0.225])
    torch.testing.assert_close(inputs[0][0, :, 0, 0], expected)
    torch.testing.assert_close(inputs[1], torch.full((1, 3, 32, 32), 0.485))


def test_random_weights_are_kept_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    backbone = build_backbone(BackboneConfig())
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    with caplog.at_level(logging.WARNING):
        backbone.read_weights()
    assert "vgg16 is random" in caplog.text
    assert not backbone.pretrained
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_random_features_keep_their_scale() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        maps = build_backbone(BackboneConfig())(waves(64))
    assert maps[-1].std() > 0.1 * maps[0].std()


def test_absent_file_is_named_only_when_read(tmp_path: Path) -> None:
    path = tmp_path / "absent.safetensors"
    backbone = build_backbone(BackboneConfig(weights=str(path)))
    with pytest.raises(ConfigError, match=r"absent\.safetensors.*'random'"):
        backbone.read_weights()


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text.safetensors", tmp_path / "other.safetensors"
    text.write_text("not weights")
    save_file({"features.0.weight": torch.zeros(3)}, other)
    for path in (text, other):
        backbone = build_backbone(BackboneConfig(weights=str(path)))
        with pytest.raises(ConfigError, match=rf"{path.name} does not hold the weights"):
            backbone.read_weights()


def test_it_stays_in_evaluation_mode() -> None:
    holder = nn.ModuleList([build_backbone(BackboneConfig())]).train()
    assert not any(module.training for module in holder[0].modules())


def test_parameters_after_a_block_are_those_of_later_convolutions() -> None:
    backbone = build_backbone(BackboneConfig())
    names = {id(parameter): name for name, parameter in backbone.named_parameters()}
    after = [names[id(parameter)] for parameter in backbone.parameters_after(3)]
    assert after == [
        f"features.{i}.{k}" for i in (17, 19, 21, 24, 26, 28) for k in ("weight", "bias")
    ]
    assert len(backbone.parameters_after(0)) == len(names)


def test_pooling_is_the_mean_over_locations() -> None:
    maps = torch.rand(2, 3, 4, 5)
    torch.testing.assert_close(pooled(maps), maps.mean((2, 3)))


class Levels(nn.Module):
    """The interface of timm's networks of features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 2, 1)
        self.bn = nn.BatchNorm2d(4)
        self.layer = nn.Conv2d(4, 6, 3, 2, 1)
        self.return_layers = {"bn": "0", "layer": "1"}
        self.feature_info = SimpleNamespace(channels=lambda: [4, 6])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        first = self.bn(self.stem(x))
        return [first, self.layer(first)]


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """A stand-in for timm, and the settings it was called with."""
    calls: list[dict[str, object]] = []

    def create_model(name: str, **settings: object) -> Levels:
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        calls.append(settings)
        torch.manual_seed(len(calls))
        return Levels()

    module = ModuleType("timm")
    module.create_model = create_model
    module.get_pretrained_cfg = lambda _: SimpleNamespace(hf_hub_id="timm/tiny")
    monkeypatch.setitem(sys.modules, "timm", module)
    return calls


def tiny(weights: str = "random") -> Backbone:
    return build_backbone(BackboneConfig(name="tiny", weights=weights))


@pytest.mark.usefixtures("timm")
def test_timm_models_give_levels_and_fine_tune_from_a_block() -> None:
    backbone = tiny()
    assert backbone.channels == (4, 6)
    assert [m.shape[1] for m in backbone(waves(16))] == [4, 6]
    assert len(backbone(waves(16), blocks=1)) == 1
    after = backbone.parameters_after(1)
    assert [id(p) for p in after] == [id(p) for p in backbone.network.layer.parameters()]


def test_timm_reads_from_the_file_and_never_downloads(
    timm: list[dict[str, object]], tmp_path: Path
) -> None:
    path = tmp_path / "tiny.safetensors"
    path.touch()
    backbone = tiny(str(path))
    before = backbone.network.stem.weight.clone()
    backbone.read_weights()
    assert timm[1]["pretrained_cfg_overlay"] == {"file": str(path)}
    assert not torch.equal(backbone.network.stem.weight, before)
    assert "pretrained" not in timm[0]


@pytest.mark.usefixtures("timm")
def test_timm_weights_outside_its_cache_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = ModuleType("huggingface_hub")
    hub.try_to_load_from_cache = lambda *_: None
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ConfigError, match="'tiny' are not in timm's cache"):
        tiny("timm").read_weights()


@pytest.mark.usefixtures("timm")
def test_names_timm_does_not_know_are_refused() -> None:
    with pytest.raises(ConfigError, match="'resnet19'"):
        build_backbone(BackboneConfig(name="resnet19"))


def test_absent_timm_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="'resnet18' needs timm"):
        build_backbone(BackboneConfig(name="resnet18"))
