"""Files that are there completely or not at all, also after a power cut, and with one writer."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from squid.errors import BusyError

READABLE = 0o644
"""Everyone may read what this program writes, unlike files with the default mode of `mkstemp`."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write; when the block ends well it takes the place of `path`.

    Its name is random and the file is new, so a link that was planted there is never followed, and
    two writers do not write into one file.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        _flush(partial)
        partial.chmod(READABLE)
        os.replace(partial, path)
        _flush(path.parent)  # the new name, too, must be on the disk
    finally:
        partial.unlink(missing_ok=True)


def move(source: Path, target: Path) -> None:
    """Rename a file; it is at one of the two places, also after a power cut."""
    os.rename(source, target)
    _flush(target.parent)
    _flush(source.parent)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """The end of a text file that is there, in UTF-8; a link in its place is refused."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(handle, "a", newline="", encoding="utf-8") as file:
        yield file


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """The only writer of `what`, as long as the block runs; a second one is refused at once.

    The lock file `path` is gone afterwards. One that a killed process left behind is no obstacle:
    the lock itself ends with its process.
    """
    handle = _open_lock(path)
    if handle is None:
        holder = _holder(path)
        raise BusyError(f"{what} is being written by {holder}; wait until it ends, or stop it.")
    try:
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        # Removed before it is released, so that nobody else's lock file is.
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _open_lock(path: Path) -> int | None:
    """A handle that holds the lock; None where another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, READABLE)
        if not _take(handle):
            os.close(handle)
            return None
        # Its holder may have removed the file between the two calls: then it locks nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(there := os.fstat(handle), os.stat(path)):
                if there.st_nlink > 1:  # under another name it is a file that must not change
                    os.close(handle)
                    raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), str(path))
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)


def _take(handle: int) -> bool:
    """Whether the lock is ours; so it is on a file system without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f"process {int(path.read_text())}"
    return "another process"


def _flush(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
