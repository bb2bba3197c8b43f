"""Optimisers and their schedules, from a recipe."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from squid.errors import RunError
from squid.methods.base import OptimizerConfig
from squid.train.adam import FusedAdam

MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.RMSprop: ("step", "square_avg"),
    torch.optim.SGD: (),
}
"""What each kind keeps of every parameter, at least."""


def build_optimizer(
    config: OptimizerConfig,
    parameters: Sequence[nn.Parameter],
    *,
    capturable: bool,
    fused_adam: bool = False,
) -> torch.optim.Optimizer:
    """`capturable` keeps rate and step count on the device, as CUDA graphs need them; `fused_adam`
    is for compiled steps."""
    decay = config.weight_decay
    # Clipping needs the norm of all gradients before the first update, which one pass cannot have.
    fused_adam = fused_adam and config.kind == "adam" and config.clip is None
    on_device = capturable or fused_adam
    lr = torch.tensor(config.lr, device=parameters[0].device) if on_device else config.lr
    if fused_adam:
        return FusedAdam(parameters, lr, config.betas, config.eps, decay)
    if config.kind == "adam":
        return torch.optim.Adam(
            parameters, lr, config.betas, config.eps, decay, fused=capturable, capturable=capturable
        )
    if config.kind == "sgd":
        return torch.optim.SGD(
            parameters, lr, config.momentum, weight_decay=decay, fused=capturable
        )
    return torch.optim.RMSprop(
        parameters,
        lr,
        eps=config.eps,
        weight_decay=decay,
        momentum=config.momentum,
        capturable=capturable,
    )


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Moments and counts from `saved`; rates and flags stay the optimiser's own, so that a training
    may go on in another form of the step or with an edited recipe."""
    if not _fits(optimizer, saved):
        raise RunError(
            "The saved optimisers do not belong to this recipe; restore recipe.toml, or train anew "
            "with --overwrite."
        )
    # Everything but the parameters' numbers comes from this optimiser, not from the saved one.
    groups = [
        {**old, **{key: value for key, value in own.items() if key != "params"}}
        for old, own in zip(saved["param_groups"], optimizer.param_groups, strict=True)
    ]
    # FusedAdam shares one count among all parameters, where others update each parameter's own.
    state = {
        number: {**moments, "step": moments["step"].clone()} if "step" in moments else moments
        for number, moments in saved["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _fits(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> bool:
    """Whether there is a moment of the right shape for each parameter that has some."""
    own, groups = optimizer.param_groups, saved["param_groups"]
    if [len(one["params"]) for one in own] != [len(one["params"]) for one in groups]:
        return False
    shapes = dict(enumerate(p.shape for group in own for p in group["params"]))
    needed = {n for kind, names in MOMENTS.items() if isinstance(optimizer, kind) for n in names}
    return saved["state"].keys() <= shapes.keys() and all(
        needed <= moments.keys()
        and all(v is None or v.shape in (shapes[number], ()) for v in moments.values())
        for number, moments in saved["state"].items()
    )


def rate(config: OptimizerConfig, time: float, length: int) -> float:
    """The learning rate at epoch `time` of a stage of `length` epochs."""
    # The authors' cosine has a longer period than their training, and so ends before its minimum.
    period = config.period or length
    final = config.lr if config.final_lr is None else config.final_lr
    if config.schedule == "cosine":
        return final + (config.lr - final) * (1 + math.cos(math.pi * time / period)) / 2
    if config.schedule == "halving":
        return float(config.lr * 0.5 ** (time // period))
    if config.schedule == "poly":
        return float(config.lr * (1 - min(time / period, 1.0)) ** 0.9)
    return config.lr


def set_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """In place where the rate is a tensor, so that CUDA graphs see it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value
