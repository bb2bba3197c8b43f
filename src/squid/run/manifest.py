"""`MANIFEST.sha256`: checksums of the files that decide what a detector answers.

Its lines are those of `sha256sum`, so that `sha256sum --check MANIFEST.sha256` reads them as well.
It tells damage and exchanged files; whoever can write the folder can write the manifest, too.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from squid.durable import write_text
from squid.errors import RunError
from squid.run.files import check_file

MANIFEST = "MANIFEST.sha256"
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


class UnverifiedWarning(UserWarning):
    """A file that is not as the manifest has it is used because the user asked for it."""


class Manifest:
    """The checksums of one run folder, by the files' names in it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.path = folder, folder / MANIFEST
        self._known: dict[tuple[str, int, int, int], str] = {}

    def write(self, digests: Mapping[str, str]) -> None:
        lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        write_text(self.path, "".join(lines))

    def add(self, name: str) -> None:
        """The file as it is now; the lines of the others stay."""
        self.write(self.read() | {name: self.digest(name)})

    def read(self) -> dict[str, str]:
        if not check_file(self.path).is_file():
            raise RunError(
                f"{self._folder} has no {MANIFEST}, so its files cannot be checked; restore it, "
                "train again, or go on with --unverified."
            )
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        found = [LINE.fullmatch(line) for line in lines]
        if not all(found):
            raise RunError(f"{self.path} is damaged; restore it, or go on with --unverified.")
        return {match[2]: match[1] for match in found if match}

    def check(self, name: str) -> None:
        """An error where the file is not the one that was written with the manifest."""
        known = self.read().get(name)
        if known is None:
            raise RunError(
                f"{self._folder / name} is not in {MANIFEST}: it did not come with this run; "
                "remove it, or go on with --unverified."
            )
        if self.digest(name) != known:
            raise RunError(
                f"{self._folder / name} was changed or damaged: its checksum is not that in "
                f"{MANIFEST}; restore it, or go on with --unverified."
            )

    def digest(self, name: str) -> str:
        """SHA-256 of a file, which is read once as long as it stays the same."""
        path = check_file(self._folder / name)
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            key = name, about.st_ino, about.st_size, about.st_mtime_ns
            if key not in self._known:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._known[key]
