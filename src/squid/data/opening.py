"""Files opened without a chance to wait for ever or to fill the memory."""

import os
import stat
from pathlib import Path

from squid.errors import DataError

SPECIAL = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


def special_kind(mode: int) -> str:
    """What a path with such a mode is, if it is neither a file nor a folder; else ''."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    return f"a special file ({SPECIAL.get(stat.S_IFMT(mode), 'device')})"


def open_regular(path: str, flags: int) -> int:
    """An opener for `open` that refuses special files, and does not wait for a FIFO's writer."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    if kind := special_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, f"it is {kind}", path)
    return descriptor


def read_bounded(path: Path, limit: int) -> bytes:
    """The whole of a regular file of at most `limit` bytes."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            # A buffer of the file's own size: threads would wait for one of the largest size.
            data = file.read(min(os.fstat(file.fileno()).st_size, limit) + 1)
    except (OSError, ValueError) as error:  # a ValueError: the name holds a NUL
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}.") from None
    if len(data) > limit:
        raise DataError(f"{path} has more than {limit // 2**20} MiB; make it smaller.")
    return data
