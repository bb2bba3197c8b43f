"""Where datasets and pretrained weights lie on this machine.

All of them lie in the data folder. The environment variable `SQUID_DATA` names it. Without the
variable it is `data/` in the working directory or, where that is missing, `../shared/data`, which
several checkouts of the project can share.
"""

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "SQUID_DATA"
GUIDE = "docs/how-to/get-the-data.md"
DEFAULTS = (Path("data"), Path("../shared/data"))


def data_folder() -> Path:
    """The data folder, absolute; it may be missing."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    return next((path for path in DEFAULTS if path.is_dir()), DEFAULTS[0]).resolve()


def data_candidates(path: Path) -> list[Path]:
    """What the path of a dataset can mean, absolute: a relative one is taken from the working
    directory, then from the data folder."""
    path = path.expanduser()
    if path.is_absolute():
        return [path]
    return [path.resolve(), (data_folder() / path).resolve()]


def weights_candidates(name: str) -> list[Path]:
    """Where a file of pretrained weights can be, absolute: at this path, then in a folder
    `weights` inside the data folder or next to it."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return [path]
    folder = data_folder()
    return [path.resolve(), folder / "weights" / path, folder.parent / "weights" / path]


def missing(what: str, candidates: Sequence[Path]) -> str:
    """The message about something that is at none of the candidates."""
    looked = " or ".join(str(path) for path in candidates)
    return (
        f"There is no {what}: nothing is at {looked}. {GUIDE} says where to get it; "
        f"{VARIABLE} names the folder that holds it."
    )
