"""How large a method may be: what a recipe asks for is counted before memory is taken for it."""

import resource
import time
from typing import Any

import pytest
import torch

from squid.config import parse
from squid.errors import ConfigError
from squid.methods import METHODS, build
from squid.methods.base import MethodConfig
from squid.methods.parameters import count_parameters

AUTO = {"name": "auto_encoder", "size": 32, "channels": [4, 8]}


def read(values: dict[str, Any]) -> MethodConfig:
    return parse(METHODS[values["name"]].Config, values, "recipe.toml")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_as_many_as_are_counted(name: str) -> None:
    config = METHODS[name].Config(name=name)
    counted = count_parameters(config, METHODS[name])
    assert counted == sum(values.numel() for values in build(config).state_dict().values())


@pytest.mark.parametrize(
    "values",
    [
        {"name": "squid", "width": 99_999_999},
        {"name": "squid", "discriminator_width": 99_999_999},
        {"name": "squid", "slots": 10**7},
        {"name": "squid", "width": 10**18},
        {"name": "squid", "width": 10**30},
        {"name": "squid", "depth": 10**9},
        {"name": "squid", "size": 2**40},
        {"name": "ganomaly", "size": 2**40},
        {"name": "auto_encoder", "hidden": 10**9},
        {"name": "auto_encoder", "members": 100_000},
        {"name": "squid", "members": 100},
        {"name": "if2d", "layers": 10**9},
        {"name": "cutpaste", "head_layers": 10**9},
        {"name": "patch_memae", "size": 4096, "grid": 256},
        {"name": "fusion", "parts": [AUTO] * 1000},
        {"name": "fusion", "parts": [AUTO | {"members": 60}] * 2},
        {"name": "fusion", "parts": [AUTO, {"name": "fusion", "parts": [AUTO, AUTO]}]},
        {"name": "fusion", "parts": [AUTO, {"name": "squid", "width": 10**6}]},
    ],
    ids=str,
)
def test_what_no_memory_holds_is_refused_at_once(values: dict[str, Any]) -> None:
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError) as caught:
        build(read(values))
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 5  # below one second on a machine that does nothing else
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_hundred_members_are_built_and_one_more_is_refused() -> None:
    assert len(build(read(AUTO | {"members": 100})).members) == 100  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="members"):
        read(AUTO | {"members": 101})


@pytest.mark.parametrize("name", ["padim", "squid"])  # padim draws numbers while it is built
def test_counting_changes_no_weight(name: str) -> None:
    config = METHODS[name].Config(name=name)
    torch.manual_seed(0)
    built = build(config).state_dict()
    torch.manual_seed(0)
    alone = METHODS[name](config).state_dict()
    assert all(torch.equal(built[key], alone[key]) for key in alone)


@pytest.mark.parametrize("blocks", [[], [0], [9]])
def test_blocks_that_a_backbone_does_not_have_are_refused(blocks: list[int]) -> None:
    with pytest.raises(ConfigError, match="choose from 1 to 5"):
        build(read({"name": "padim", "blocks": blocks}))
    with pytest.raises(ConfigError, match="choose from 1 to 5"):
        build(read({"name": "mkd", "score_blocks": blocks}))
