"""The authors' checkpoints as a method (github.com/tiangexiang/SQUID, commit 1bb3b70).

Sizes are read from the shapes of the weights; other settings are those the authors released. Their
checkpoints do not hold the queue's pointer, so it starts at zero.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from squid.calibration import UNCALIBRATED
from squid.data.folder import Folder
from squid.detector import Detector
from squid.errors import ConfigError, DataError
from squid.methods import build
from squid.methods.base import Method, OptimizerConfig
from squid.methods.squid.config import SquidConfig
from squid.nn.conv import at_least_float32
from squid.recipe import Recipe

State = dict[str, Tensor]

RELEASED: dict[str, Any] = {
    "conv_bias": True,
    "topk": "authors",
    "queue_update": "generator",
    "forwards": "separate",
    "drop_last": False,
    "generator": OptimizerConfig(
        final_lr=1e-5,
        schedule="cosine",
        period=300,
        betas=(0.5, 0.999),
        eps=1e-7,
        weight_decay=1e-5,
    ),
    "discriminator": OptimizerConfig(betas=(0.5, 0.999)),
}
"""The authors' settings, where our defaults differ."""

GENERATOR_KEYS = {
    r"in_conv\.conv\.": "encoder.enter.",
    r"down_blocks\.(\d+)\.mpconv\.": r"encoder.levels.\1.",
    r"up_blocks\.(\d+)\.conv\.": r"student.levels.\1.",
    r"teacher_ups\.(\d+)\.conv\.": r"teacher.levels.\1.",
    r"out_conv\.conv\.": "student.out.",
    r"teacher_out\.conv\.": "teacher.out.",
}

INPAINTING_KEYS = {
    r"bottleneck_conv1\.": "reduce.",
    r"bottleneck_conv2\.": "expand.",
    r"attention\.out_proj\.": "layer.mix.out.",
    r"attn_norm(\d)\.": r"layer.norm\1.",
    r"ff\.0\.": "layer.feed_forward.0.",
    r"ff\.3\.": "layer.feed_forward.2.",
}


def read_reference(generator: Path, discriminator: Path) -> Method:
    """`from_reference` for checkpoint files, loaded weights-only."""
    return from_reference(_read(generator), _read(discriminator))


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise DataError(f"There is no checkpoint {path}.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a file that is not a checkpoint may fail anywhere
        # Not with torch's words, which advise to load it unsafely.
        raise DataError(
            f"{path} is not a state dict that can be loaded safely; save it anew with "
            "torch.save(model.state_dict(), ...)."
        ) from None
    if not isinstance(state, Mapping):
        raise DataError(f"{path} holds no state dict but a {type(state).__name__}.")
    return state


def from_reference(
    generator_state: Mapping[str, Any], discriminator_state: Mapping[str, Any]
) -> Method:
    """A method with the reconstructions and scores of the authors' two state dicts (of arrays or
    tensors)."""
    theirs, classify = _tensors(generator_state), _tensors(discriminator_state)
    try:
        config = reference_config(theirs, classify)
        state = generator_state_of(theirs, config) | discriminator_state_of(classify)
        method = build(config)
    except DataError:
        raise
    except ConfigError as error:
        raise DataError(f"The state dicts do not fit together: {error}") from None
    except Exception:  # tensors of other shapes may fail anywhere
        raise DataError(
            "The state dicts do not fit together; are they two of the authors' checkpoints?"
        ) from None
    # In the precision of the checkpoint: float64 weights stay float64.
    method.to(_entry(theirs, "in_conv.conv.conv1.0.weight").dtype)
    _check(state, method.state_dict())
    method.load_state_dict(state)
    return method.eval()


def reference_config(theirs: State, classify: State) -> SquidConfig:
    """Sizes from the shapes of the authors' entries."""
    width = _entry(theirs, "in_conv.conv.conv1.0.weight").shape[0]
    depth = _count(theirs, r"down_blocks\.(\d+)\.")
    inner = _entry(theirs, "inpaint_block.bottleneck_conv1.0.weight").shape[0]
    slots, token = _entry(theirs, "inpaint_block.memory.0.memMatrix").shape
    # One memory for each patch position, and one token for a whole patch: both are squares.
    grid = math.isqrt(_count(theirs, r"inpaint_block\.memory\.(\d+)\."))
    side = math.isqrt(token // inner)
    # Skips join the decoder's levels before the patches are merged.
    joined = sum(_takes_skip(theirs, i, width * 2 ** (depth - i)) for i in range(depth))
    matrix = f"memory_blocks.{depth - 1}.memory.0.memMatrix"
    return SquidConfig(
        size=grid * side << depth,
        grid=grid,
        width=width,
        depth=depth,
        merge_level=depth - joined,
        discriminator_width=_entry(classify, "conv_model.0.weight").shape[0],
        slots=slots,
        matrix_slots=theirs[matrix].shape[0] if matrix in theirs else slots,
        decoder_memory=_place(theirs, matrix, cells=(2 * side) ** 2 * width << (depth - 1)),
        **RELEASED,
    )


def generator_state_of(theirs: State, config: SquidConfig) -> State:
    """The authors' generator under our names."""
    state: State = {}
    for key, value in theirs.items():
        if not key.startswith(("inpaint_block.", "memory_blocks.")):
            state[_block_key(_rename(key, GENERATOR_KEYS))] = value
    inside = _under(theirs, "inpaint_block.")
    state |= {f"inpainting.{key}": value for key, value in inpainting_state(inside).items()}
    # Theirs are numbered from the outermost level inwards, ours in the order of the decoder.
    for i in range(_count(theirs, r"memory_blocks\.(\d+)\.")):
        rows = _stacked(_under(theirs, f"memory_blocks.{config.depth - 1 - i}."))
        if config.decoder_memory == "patch":  # theirs are channel-major there, ours never
            cells = config.side * 2 ** (i + 1)
            rows = rearrange(rows, "p n (c h w) -> p n (h w c)", h=cells, w=cells)
        state[f"student.memories.{i}.memory.slots"] = rows
    return state


def inpainting_state(theirs: State) -> State:
    """The authors' in-painting block under our names."""
    state = {
        _rename(key, INPAINTING_KEYS): value
        for key, value in theirs.items()
        if not key.startswith(("memory.", "attention.in_proj"))
    }
    # Their attention has one projection for query, key and value; ours has two.
    for kind in ("weight", "bias"):
        joint = _entry(theirs, f"attention.in_proj_{kind}")  # query, key, value
        width = joint.shape[0] // 3
        state[f"layer.mix.query.{kind}"] = joint[:width]
        state[f"layer.mix.key_value.{kind}"] = joint[width:]
    state["memory.slots"] = _stacked(theirs)
    state["memory.pointer"] = torch.zeros((), dtype=torch.long)
    return state


def discriminator_state_of(theirs: State) -> State:
    """The authors' discriminator under our names."""
    keys = discriminator_keys(1 + sum("running_mean" in key for key in theirs))
    return {f"discriminator.{keys.get(key, key)}": value for key, value in theirs.items()}


def discriminator_keys(depth: int) -> dict[str, str]:
    """Their keys -> ours. Their list has two entries for the first level, which has no
    normalisation, and three for each other."""
    keys = {f"regressor.{kind}": f"head.{kind}" for kind in ("weight", "bias")}
    normalised = ("weight", "bias", "running_mean", "running_var")
    for level in range(depth):
        place = max(3 * level - 1, 0)
        for kind in ("weight", "bias"):
            keys[f"conv_model.{place}.{kind}"] = f"levels.{level}.conv.{kind}"
        for kind in normalised if level else ():
            keys[f"conv_model.{place + 1}.{kind}"] = f"levels.{level}.norm.{kind}"
    return keys


def _tensors(state: Mapping[str, Any]) -> State:
    """The state as tensors, without the batch counts of normalisation, which our layers omit."""
    return {
        str(key): _tensor(key, value)
        for key, value in state.items()
        if not str(key).endswith("num_batches_tracked")
    }


def _tensor(key: object, value: object) -> Tensor:
    """An entry, at least in float32."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        value = torch.as_tensor(value)
    if not (isinstance(key, str) and isinstance(value, Tensor) and _is_real(value)):
        raise DataError(
            f"The state dict holds no real numbers under {str(key)[:40]!r}; is it one of the "
            "authors' checkpoints?"
        )
    return at_least_float32(value)


def _is_real(values: Tensor) -> bool:
    return values.is_floating_point() and values.layout == torch.strided


def _entry(state: State, key: str) -> Tensor:
    if key not in state:
        raise DataError(f"The state dict has no '{key}'; is it one of the authors' checkpoints?")
    return state[key]


def _under(state: State, prefix: str) -> State:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _count(state: State, pattern: str) -> int:
    """How many different numbers the group of `pattern` matches."""
    return len({match[1] for key in state if (match := re.match(pattern, key))})


def _takes_skip(state: State, i: int, channels: int) -> bool:
    """Whether level `i` of the decoder joins the encoder's features to its own."""
    return _entry(state, f"up_blocks.{i}.conv.conv1.0.weight").shape[1] > channels


def _place(state: State, matrix: str, cells: int) -> Literal["none", "window", "patch"]:
    if matrix not in state:
        return "none"
    return "patch" if state[matrix].shape[1] == cells else "window"


def _stacked(state: State) -> Tensor:
    regions = _count(state, r"memory\.(\d+)\.")
    rows = [_entry(state, f"memory.{i}.memMatrix") for i in range(regions)]
    if len({row.shape for row in rows}) != 1:
        raise DataError("The regions of a memory differ in shape; they should be alike.")
    return torch.stack(rows)


def _rename(key: str, names: Mapping[str, str]) -> str:
    for pattern, name in names.items():
        if re.match(pattern, key):
            return re.sub(pattern, name, key, count=1)
    return key


def _block_key(key: str) -> str:
    return key.replace(".conv1.", ".enter.").replace(".conv2.", ".branch.")


def _check(state: State, expected: Mapping[str, Tensor]) -> None:
    if extra := sorted(state.keys() - expected.keys()):
        raise DataError(f"The state dicts hold '{extra[0]}', which this method does not have.")
    if missing := sorted(expected.keys() - state.keys()):
        raise DataError(f"The state dicts hold nothing for '{missing[0]}'.")
    for key, value in expected.items():
        if state[key].shape != value.shape:
            ours, theirs = tuple(value.shape), tuple(state[key].shape)
            raise DataError(f"'{key}' should have the shape {ours}, not {theirs}.")


def convert_run(
    generator: Path, discriminator: Path, out: Path, *, overwrite: bool = False
) -> None:
    """A run folder from the authors' checkpoints. It scores; `squid calibrate` adds thresholds."""
    method = read_reference(generator, discriminator).float()  # as detectors score
    # A recipe needs data; the folder is a placeholder, since the authors' images are not known.
    data = Folder(root=Path())
    recipe = Recipe(
        title="Converted from the authors' checkpoints", data=data, method=method.config
    )
    Detector(method, UNCALIBRATED, recipe, device="cpu").save(out, overwrite=overwrite)
