"""Files that are there completely or not at all, also after a power cut, and with one writer."""

import errno
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from squid.errors import BusyError, RunError

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


def remove_partial(folder: Path, names: str) -> None:
    """Remove what writers of files with such names (an expression) left in a folder when they were
    killed. Only for who holds the lock under which such files are written."""
    for path in folder.glob(".*.part"):
        if re.fullmatch(rf"\.({names})\.\w{{8}}\.part", path.name):
            with suppress(OSError):  # no file of ours
                path.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a file; it is at one of the two places, also after a power cut."""
    os.rename(source, target)
    _flush(target.parent)
    _flush(source.parent)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def open_itself(path: Path, flags: int, mode: int = READABLE) -> int:
    """A handle of the file itself, to write; a link in its place is refused."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RunError(f"{path} is a link, to which nothing is written; remove it.") from None


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """The end of a text file that is there, in UTF-8; a link in its place is refused."""
    handle = open_itself(path, os.O_WRONLY | os.O_APPEND)
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
        handle = open_itself(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        if not _take(handle):
            os.close(handle)
            return None
        # Its holder may have removed the file between the two calls: then it locks nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(there := os.fstat(handle), os.stat(path)):
                # Under another name it is a file that must not change.
                if there.st_nlink > 1 or not stat.S_ISREG(there.st_mode):
                    os.close(handle)
                    raise RunError(f"{path} is in the place of a lock and is none; remove it.")
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
