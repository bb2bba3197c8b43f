"""Files that are there completely or not at all, also after a power cut."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
