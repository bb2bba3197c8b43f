"""A folder into which others put files, and out of which each is taken once.

    IN                     files to come, also in folders; hidden ones are left alone
      .squid/work          files that were taken and are not finished
      .squid/attempts      how often those were begun (`attempts.py`)
      done, failed         finished files; beside a failed one a text with the reason

A file moves by renaming only, so at any moment, also after a kill, it is in exactly one of these.
Links and devices are never opened: they go to `failed` as they are.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from squid.durable import move, write_text
from squid.errors import DataError
from squid.node.attempts import Attempts

OWN, DONE, FAILED = ".squid", "done", "failed"
CHUNK = 2**20
LONGEST = 200
"""Bytes of a file name, of the 255 that there can be: endings are added to it."""


@dataclass(frozen=True)
class Taken:
    """A file that was taken out of the folder."""

    name: Path
    """Its path in the folder when it came."""
    path: Path
    """Where it is now."""

    @property
    def is_file(self) -> bool:
        """Whether it can be opened: no link, device or pipe."""
        return stat.S_ISREG(self.path.lstat().st_mode)

    def digest(self) -> str:
        """SHA-256 of its content; '' for what is not opened."""
        if not self.is_file:
            return ""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


class Inbox:
    """The folder; a file is taken once it has been still, unchanged, for so many seconds."""

    def __init__(self, folder: Path, still: float) -> None:
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}.")
        self.folder, self.still = folder.resolve(), still
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}
        """The size and time of change of each file, and since when they have been so."""
        for name in (OWN, DONE, FAILED):
            _make(self.folder, Path(name))
        self.lock = self.folder / OWN / "lock"
        self.attempts = Attempts(_make(self.folder, Path(OWN) / "attempts"))
        self._work = _make(self.folder, Path(OWN) / "work")

    @property
    def waiting(self) -> int:
        """How many files came that have not been still for long enough."""
        return len(self._seen)

    def look(self) -> list[Path]:
        """The names of the files that have been still for long enough, the oldest first."""
        now, seen, ready = time.monotonic(), {}, []
        for name, found in self._files():
            state = found.st_size, found.st_mtime_ns
            before, since = self._seen.get(name, (state, now))
            if before != state:
                since = now
            if now - since >= self.still:
                ready.append((found.st_mtime_ns, name))
            else:
                seen[name] = state, since
        self._seen = seen
        return [name for _, name in sorted(ready)]

    def take(self, names: list[Path]) -> list[Taken]:
        """Move files to where nobody else moves them; one that is gone meanwhile is left out."""
        taken = []
        for name in names:
            path = _make(self._work, name.parent) / name.name
            try:
                move(self.folder / name, path)
            except FileNotFoundError:
                continue
            taken.append(Taken(name, path))
        return taken

    def left_over(self) -> list[Taken]:
        """Files that were taken and not finished when the last program ended."""
        taken = [Taken(path.relative_to(self._work), path) for path in _walk(self._work)]
        # A file of the same name that comes later begins anew.
        self.attempts.keep({one.name for one in taken})
        return taken

    def finish(self, one: Taken, digest: str) -> None:
        """Move a file to `done`."""
        self._put(one, self._target(one, DONE, digest))

    def fail(self, one: Taken, reason: str) -> None:
        """Move a file to `failed`, with the reason beside it."""
        try:
            digest = one.digest()
        except OSError:  # it failed because it cannot be read
            digest = ""
        target = self._target(one, FAILED, digest)
        # The reason first: a file in `failed` has one, whenever the program ends.
        write_text(target.with_name(f"{shortened(target.name)}.reason.txt"), reason + "\n")
        self._put(one, target)

    def _put(self, one: Taken, target: Path) -> None:
        move(one.path, target)
        # Folders of its name are removed, unless another file in them is being scored.
        for parent in one.path.parents:
            if parent == self._work or any(parent.iterdir()):
                break
            parent.rmdir()

    def _target(self, one: Taken, folder: str, digest: str) -> Path:
        """A free place for a file, or that of an earlier one with the same content."""
        target = nested(self.folder / folder, one.name)
        if not target.exists() and not target.is_symlink():
            return target
        if digest and Taken(one.name, target).digest() == digest:
            return target
        number = digest[:12] or str(time.time_ns())
        return target.with_name(f"{shortened(target.stem)}-{number}{target.suffix}")

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """What came: its name and its state."""
        for path in _walk(self.folder, skipped=(DONE, FAILED)):
            try:
                yield path.relative_to(self.folder), path.lstat()
            except FileNotFoundError:
                continue  # its writer has taken it back


def shortened(name: str) -> str:
    """A name that an ending can be added to; one that is too long ends in a digest of itself."""
    encoded = os.fsencode(name)
    if len(encoded) <= LONGEST:
        return name
    return f"{os.fsdecode(encoded[: LONGEST - 13])}-{hashlib.sha256(encoded).hexdigest()[:12]}"


def nested(folder: Path, name: Path) -> Path:
    """A path below a folder, its own folders made; flat where a file is in place of one."""
    try:
        return _make(folder, name.parent) / name.name
    except (FileExistsError, NotADirectoryError):
        return folder / shortened("_".join(name.parts))


def _walk(folder: Path, skipped: tuple[str, ...] = ()) -> Iterator[Path]:
    """All visible entries below a folder but folders; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in skipped:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            else:
                yield Path(entry.path)


def _make(folder: Path, name: Path) -> Path:
    """A folder below another one, of real folders: a link among them could lead anywhere."""
    for part in name.parts:
        folder = folder / part
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise DataError(f"{folder} is a link; remove it, then start again.")
    return folder
