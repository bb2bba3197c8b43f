"""States from which an interrupted training goes on: the last one and the one before it."""

import errno
import math
import os
import warnings
from pathlib import Path
from typing import Any, cast

import torch

from squid.durable import replacing
from squid.errors import RunError
from squid.run.files import check_file
from squid.train.monitor import State

LAST, BEFORE = "resume.pt", "resume.before.pt"


class OlderStateWarning(UserWarning):
    """The last state is damaged, so a training goes on from the one before."""


def save_state(folder: Path, state: State) -> None:
    """The last state; what was the last one is kept as well."""
    path = folder / LAST
    with replacing(path) as partial:
        try:
            torch.save(state, partial)
        except RuntimeError as error:  # torch's own for a disk that is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        if path.is_file():
            os.replace(path, folder / BEFORE)


def load_state(folder: Path) -> State | None:
    """The last state that is whole; None where none was saved."""
    damaged: list[Path] = []
    for path in (folder / LAST, folder / BEFORE):
        if not path.is_file():
            continue
        state = _read(path)
        if state is None:
            damaged.append(path)
            continue
        for other in damaged:
            message = f"{other} is damaged: the training goes on from the state before it."
            warnings.warn(message, OlderStateWarning, stacklevel=3)
        return state
    if damaged:
        raise RunError(
            f"{damaged[0]} is damaged, and there is no state before it; train anew with "
            f"--out {folder} --overwrite."
        )
    return None


def has_state(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (LAST, BEFORE))


def drop_states(folder: Path) -> None:
    for name in (LAST, BEFORE):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> State | None:
    """The state in a file, loaded weights-only; None where it is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about strange pickles
            state = torch.load(check_file(path), map_location="cpu", weights_only=True)
        return cast("State", state) if _is_whole(state) else None
    except Exception:  # on broken bytes torch raises many kinds
        return None


def _is_whole(state: Any) -> bool:
    """Whether each part of a state is there and of its kind. Whether it belongs to a training, only
    that training knows."""
    if not isinstance(state, dict) or state.keys() != State.__annotations__.keys():
        return False
    places = [state[name] for name in ("stage", "epoch", "step")]
    totals, optimizers = state["totals"], state["optimizers"]
    return (
        all(type(one) is int and one >= 0 for one in places)
        and isinstance(totals, dict)
        and all(type(one) is float and math.isfinite(one) for one in totals.values())
        and isinstance(state["method"], dict)
        and all(map(_is_number, state["method"].values()))
        and isinstance(optimizers, list)
        and all(map(_is_optimizer, optimizers))
    )


def _is_optimizer(saved: Any) -> bool:
    """Whether it is the `state_dict` of an optimiser."""
    moments = [value for one in saved["state"].values() for value in one.values()]
    groups = saved["param_groups"]
    return (
        all(one is None or _is_number(one) for one in moments)
        and isinstance(groups, list)
        and all(isinstance(group["params"], list) for group in groups)
    )


def _is_number(values: Any) -> bool:
    """Whether it is a tensor without NaN; an infinite value may stand for none yet."""
    return isinstance(values, torch.Tensor) and not bool(values.isnan().any())
