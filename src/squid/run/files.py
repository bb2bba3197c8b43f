"""Which files of a run folder are read at all: regular ones, no larger than a training makes them.

Both are seen before a file is opened: a folder that came from someone else may hold a pipe, a link
to a device, or a file of terabytes that takes no room on the disk.
"""

import stat
from pathlib import Path

from squid.data.opening import special_kind
from squid.errors import RunError

GIB = 2**30
LIMITS = {
    # All parameters that a method may have (`squid.methods.parameters`), in float32.
    "model.safetensors": 4 * GIB,
    "training.safetensors": 4 * GIB,
    "model.onnx": 4 * GIB,
    # The same with the moments of optimisers.
    "resume.pt": 16 * GIB,
    "resume.before.pt": 16 * GIB,
    "snapshots.npz": GIB,
}
"""Bytes, by the name of the file."""
OTHERS = GIB // 16


def check_file(path: Path) -> Path:
    """The path, where a regular file of a fitting size is there, or nothing; an error otherwise."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(about.st_mode):
        raise RunError(f"{path} is {special_kind(about.st_mode) or 'a folder'}, not a file.")
    limit = LIMITS.get(path.name, OTHERS)
    if about.st_size > limit:
        raise RunError(
            f"{path} has {about.st_size / 2**20:,.0f} MiB, and no training makes it larger than "
            f"{limit / 2**20:,.0f} MiB; restore it or train again."
        )
    return path
