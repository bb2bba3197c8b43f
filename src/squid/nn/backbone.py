"""Pretrained backbones: VGG16 written out, or any timm model by its name.

Building one reads no file. A method reads the weights by `Backbone.read_weights` in `begin`, that
is in training only, so a saved run needs no weights file. This is the only file access of `nn`, and
nothing is ever downloaded.
"""

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from squid.config import Config
from squid.errors import ConfigError
from squid.places import missing, weights_candidates

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
VGG16_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))

OPTIONS = (
    "set backbone.weights to the path of a safetensors file, to 'timm' for a model in timm's "
    "cache, or to 'random'"
)

_log = logging.getLogger(__name__)


class BackboneConfig(Config):
    """The network that gives the features, and the source of its weights."""

    name: str = "vgg16"
    """`vgg16`, or any model of timm where that is installed."""
    weights: str = "random"
    """A safetensors file (for VGG16 with torchvision's names): its path, or its name in the folder
    `weights` of the data folder. `timm` takes what timm has in its cache, `random` makes a result
    one of a random backbone."""


class Backbone(nn.Module):
    """Features of each block of a network, coarser from block to block.

    It is always in evaluation mode: the statistics of its batch normalisation stay, even where its
    weights are fine-tuned.
    """

    channels: tuple[int, ...]
    """Channels of each block's output."""
    mean: Tensor
    std: Tensor

    def __init__(self, config: BackboneConfig, *, normalize: bool) -> None:
        super().__init__()
        self.config = config
        self.normalize = normalize
        # Constants of ImageNet, not persistent: a saved run needs no copy of them.
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(3, 1, 1), persistent=False)

    @property
    def pretrained(self) -> bool:
        """False for a random backbone, which results must state."""
        return self.config.weights != "random"

    def forward(self, images: Tensor, blocks: int | None = None) -> list[Tensor]:
        """(b, 1, h, w) in [0, 1] -> a map (b, c, h', w') after each of the first `blocks` blocks
        (all of them when left out)."""
        # Pretrained networks expect colour; the gray channel is repeated without a copy.
        colour = images.expand(-1, 3, -1, -1)
        if self.normalize:
            colour = (colour - self.mean) / self.std
        return self._maps(colour, blocks or len(self.channels))

    def train(self, mode: bool = True) -> Self:
        # Whatever mode the method asks for: the tracked statistics must not move.
        return super().train(False)

    def read_weights(self) -> None:
        """Reads the weights of the config; a random backbone keeps its own, with a warning."""
        if self.pretrained:
            self._read(self.config.weights)
        else:
            _log.warning("The backbone %s is random; %s.", self.config.name, OPTIONS)

    def check_blocks(self, blocks: Sequence[int]) -> None:
        """An error where there are none, or one that the network does not have."""
        wrong = [block for block in blocks if not 1 <= block <= len(self.channels)]
        if wrong or not blocks:
            named = f"block {wrong[0]}" if wrong else "no block"
            raise ConfigError(
                f"The method names {named} of '{self.config.name}'; choose from 1 to "
                f"{len(self.channels)}."
            )

    def parameters_after(self, block: int) -> list[nn.Parameter]:
        """The parameters of all blocks but the first `block`, for fine-tuning."""
        raise NotImplementedError

    def _maps(self, colour: Tensor, blocks: int) -> list[Tensor]:
        raise NotImplementedError

    def _read(self, weights: str) -> None:
        raise NotImplementedError


class VGG16(Backbone):
    """The 13 convolutions of VGG16; a block ends with its max-pooling."""

    channels = tuple(widths[-1] for widths in VGG16_WIDTHS)

    def __init__(self, config: BackboneConfig, *, normalize: bool) -> None:
        super().__init__(config, normalize=normalize)
        layers: list[nn.Module] = []
        inputs = 3
        for widths in VGG16_WIDTHS:
            for width in widths:
                layers += [_convolution(inputs, width), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.eval()

    def _maps(self, colour: Tensor, blocks: int) -> list[Tensor]:
        maps: list[Tensor] = []
        x = colour
        for layer in self.features:
            x = layer(x)
            if isinstance(layer, nn.MaxPool2d):
                # A block ends at its pooling; blocks that nobody asked for are not computed.
                maps.append(x)
                if len(maps) == blocks:
                    break
        return maps

    def parameters_after(self, block: int) -> list[nn.Parameter]:
        pools = [i for i, layer in enumerate(self.features) if isinstance(layer, nn.MaxPool2d)]
        start = pools[block - 1] + 1 if block else 0
        return list(self.features[start:].parameters())

    def _read(self, weights: str) -> None:
        if weights == "timm":
            raise ConfigError(f"timm's cache is not read for vgg16; {OPTIONS}.")
        state = _read_safetensors(_weights_path(weights))
        # torchvision's file holds a classifier too, which this network does not have.
        own = {name: value for name, value in state.items() if name.startswith("features.")}
        _load(self, own, weights)


class TimmBackbone(Backbone):
    """Any model of timm that gives features of its levels."""

    def __init__(self, config: BackboneConfig, *, normalize: bool) -> None:
        super().__init__(config, normalize=normalize)
        self.network: nn.Module = self._create()
        info: Any = self.network.feature_info
        self.channels = tuple(info.channels())
        self.eval()

    def _create(self, **settings: Any) -> Any:
        name = self.config.name
        try:
            return _timm(name).create_model(name, features_only=True, **settings)
        except RuntimeError as error:
            raise ConfigError(f"timm cannot build the backbone '{name}': {error}.") from None

    def _maps(self, colour: Tensor, blocks: int) -> list[Tensor]:
        maps: list[Tensor] = self.network(colour)
        return maps[:blocks]

    def parameters_after(self, block: int) -> list[nn.Parameter]:
        outputs: Mapping[str, Any] | None = getattr(self.network, "return_layers", None)
        if outputs is None:
            raise ConfigError(
                f"The blocks of '{self.config.name}' cannot be fine-tuned one by one; "
                "choose a convolutional backbone."
            )
        # Children come in the order of computation; one that is an output ends a block.
        found, parameters = 0, []
        for name, child in self.network.named_children():
            if found >= block:
                parameters += list(child.parameters())
            found += name in outputs
        return parameters

    def _read(self, weights: str) -> None:
        path = self._cached() if weights == "timm" else _weights_path(weights)
        try:  # timm maps the names in a file to those of a network of levels
            overlay = {"file": str(path)}
            filled = self._create(pretrained=True, pretrained_cfg_overlay=overlay)
        except (SafetensorError, KeyError) as error:
            raise _misfit(path, error) from None
        self.network.load_state_dict(filled.state_dict())

    def _cached(self) -> Path:
        """timm's own weights where they are on this machine: a look-up, not a download."""
        name = self.config.name
        # Imported by name: timm brings huggingface_hub, and neither is a dependency of the package.
        origin = _timm(name).get_pretrained_cfg(name)
        hub = importlib.import_module("huggingface_hub")
        found = hub.try_to_load_from_cache(origin.hf_hub_id, "model.safetensors")
        if not isinstance(found, str):
            raise ConfigError(f"The weights of '{name}' are not in timm's cache; {OPTIONS}.")
        return Path(found)


def build_backbone(config: BackboneConfig, *, normalize: bool = True) -> Backbone:
    """A backbone with random weights until `read_weights`; `normalize` shifts and scales images as
    for ImageNet."""
    kind = VGG16 if config.name == "vgg16" else TimmBackbone
    return kind(config, normalize=normalize)


def pooled(maps: Tensor) -> Tensor:
    """(b, c, h, w) -> (b, c): the mean over locations."""
    return F.adaptive_avg_pool2d(maps, 1).flatten(1)


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # without it random features vanish
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _weights_path(weights: str) -> Path:
    """The file that `backbone.weights` means."""
    candidates = weights_candidates(weights)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise ConfigError(f"{missing(f'weights file {weights}', candidates)} Or {OPTIONS}.")
    return found


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise _misfit(path, error) from None


def _load(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    try:
        module.load_state_dict(dict(state))
    except RuntimeError as error:
        raise _misfit(Path(source), error) from None


def _misfit(path: Path, error: Exception) -> ConfigError:
    # torch lists every tensor that does not fit, line by line; the first ones tell enough.
    reason = " ".join(str(error).split())[:200]
    return ConfigError(f"{path} does not hold the weights of this backbone ({reason}); {OPTIONS}.")


def _timm(name: str) -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError:
        raise ConfigError(
            f"The backbone '{name}' needs timm, which is not installed; "
            "install it with: pip install timm, or set backbone.name to 'vgg16'."
        ) from None
