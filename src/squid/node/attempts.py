"""How often the scoring of a file was begun: one that ends the program must not be tried for ever.

A decoder that crashes takes the program with it, and no handler of errors runs. So an attempt is on
the disk before it begins, as one byte in a file that is named by a digest, and is taken back when
the program is still there afterwards.
"""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from squid.durable import READABLE

MOST = 2
"""Attempts after which a file is given up."""


class Attempts:
    """A folder with a file for each input that is being scored, or was when the program ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: Path) -> int:
        """How often an input was begun without an end."""
        try:
            return self._mark(name).lstat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def counted(self, names: Collection[Path]) -> Iterator[None]:
        """An attempt at some inputs. It stays counted where the program ends within the block, but
        for the errors of a disk, which say nothing of the inputs."""
        for name in names:
            self._begin(name)
        try:
            yield
        except OSError:
            self.forget(names)
            raise
        self.forget(names)

    def forget(self, names: Collection[Path]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._mark(name).unlink()

    def keep(self, names: Collection[Path]) -> None:
        """Forget all other inputs."""
        known = {self._mark(name) for name in names}
        for mark in set(self._folder.iterdir()) - known:
            mark.unlink()

    def _begin(self, name: Path) -> None:
        # Added to the end, so that no moment is without the earlier ones.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._mark(name), flags, READABLE)
        try:
            os.write(handle, b".")
        finally:
            os.close(handle)

    def _mark(self, name: Path) -> Path:
        return self._folder / hashlib.sha256(os.fsencode(name)).hexdigest()
