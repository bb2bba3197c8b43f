"""States from which an interrupted training goes on: the last one and the one before it."""

import errno
import os
import warnings
from pathlib import Path
from typing import cast

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
        state = torch.load(check_file(path), map_location="cpu", weights_only=True)
    except Exception:  # on broken bytes torch raises many kinds
        return None
    whole = isinstance(state, dict) and state.keys() == State.__annotations__.keys()
    return cast("State", state) if whole else None
