"""Scores on disk as they come: one line of JSON per image, in the order of the inputs.

A killed command finds its lines again and goes on after the last complete one. The journal lies
beside the file that will be made of it, is locked by its writer, and is removed at the end.
"""

import hashlib
import json
import os
import stat
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from squid.detector import ScoredImage, Scores
from squid.durable import locked
from squid.errors import RunError

SCORED, NOT_APPLICABLE, SKIPPED, LEFT_OUT = range(4)


class Journal:
    """The scored images of one command. Memory holds a score and an offset for each."""

    def __init__(self, file: BinaryIO, inputs: Mapping[str, object]) -> None:
        """Lines that are there already are kept if they were made from the same `inputs`."""
        self._file = file
        self._kinds, self._scores, self._offsets = array("b"), array("d"), array("q")
        header = json.dumps(inputs, sort_keys=True).encode() + b"\n"
        file.seek(0)
        self.replaced = (first := file.readline()) not in (b"", header)
        """Whether it held lines of other inputs, which are gone."""
        if first == header:
            self._read_lines()
        else:
            file.seek(0)
            file.truncate()
            file.write(header)
        self.resumed = len(self)
        """Images that were scored before."""

    def __len__(self) -> int:
        return len(self._kinds)

    def _read_lines(self) -> None:
        """All complete lines; what a killed writer left of the last one is cut off."""
        end = self._file.tell()
        for line in self._file:
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
                self._note(record, end)
            except (ValueError, TypeError, LookupError, OverflowError):
                break
            end += len(line)
        self._file.seek(end)
        self._file.truncate()

    def _note(self, record: Any, offset: int) -> None:
        score = 0.0 if record["score"] is None else float(record["score"])
        self._kinds.append(record["kind"])
        self._scores.append(score)
        self._offsets.append(offset)

    def add(self, scored: Scores, sources: Sequence[str]) -> None:
        """Images, and files that were skipped or left out, in the order of `sources`."""
        found: dict[str, dict[str, object]] = {
            one.source: {
                "kind": NOT_APPLICABLE if one.score is None else SCORED,
                "source": one.source,
                "score": one.score,
                "steps": one.steps,
                "reason": one.not_applicable,
            }
            for one in scored.images
        }
        # A file that was not read has a line too: every source is accounted for.
        for kind, others in ((SKIPPED, scored.skipped), (LEFT_OUT, scored.left_out)):
            for source, reason in others:
                found[source] = {"kind": kind, "source": source, "score": None, "reason": reason}
        # Of a line only kind, score and place stay in memory; the rest is read again if needed.
        self._file.seek(0, os.SEEK_END)
        for source in sources:
            record, offset = found[source], self._file.tell()
            self._file.write(json.dumps(record).encode() + b"\n")
            self._note(record, offset)
        self._file.flush()

    @property
    def scores(self) -> NDArray[np.float64]:
        """(n,) of the images that have one, in the order of the inputs."""
        return np.frombuffer(self._scores)[self._of(SCORED)] if len(self) else np.empty(0)

    def images(self) -> Iterator[ScoredImage]:
        """The most anomalous first, those without a score last."""
        if not len(self):
            return
        scored = self._of(SCORED)
        falling = scored[np.argsort(-np.frombuffer(self._scores)[scored], kind="stable")]
        for place in (*falling, *self._of(NOT_APPLICABLE)):
            record = self._read(int(place))
            steps = tuple(record["steps"])
            yield ScoredImage(record["source"], record["score"], steps, record["reason"])

    def reasons(self, kind: int) -> Iterator[tuple[str, str]]:
        """Inputs of a kind that has no score, each with the reason."""
        for place in self._of(kind) if len(self) else ():
            record = self._read(int(place))
            yield record["source"], record["reason"]

    def count(self, kind: int) -> int:
        return self._kinds.count(kind)

    def _of(self, kind: int) -> NDArray[np.int64]:
        return np.flatnonzero(np.frombuffer(self._kinds, np.int8) == kind)

    def _read(self, place: int) -> dict[str, Any]:
        self._file.seek(self._offsets[place])
        record: dict[str, Any] = json.loads(self._file.readline())
        return record


@contextmanager
def open_journal(target: Path | None, inputs: Mapping[str, object]) -> Iterator[Journal]:
    """The journal of a file that will be written, or a temporary one. It is removed when the block
    ends well or nothing is in it, and kept for the next attempt otherwise."""
    if target is None:
        with tempfile.TemporaryFile() as file:
            yield Journal(file, inputs)
        return
    # Beside the target, so that the same command finds it; one command at a time writes there.
    with locked(target.parent / f".{target.name}.lock", str(target)):
        path = target.parent / f".{target.name}.journal"
        with _open(path) as file:
            journal = Journal(file, inputs)
            try:
                yield journal
            except BaseException:
                if not len(journal):
                    path.unlink()
                raise
            path.unlink()


def _open(path: Path) -> BinaryIO:
    """A new or kept journal; a link that was planted in its place is not followed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    there = os.fstat(handle)
    if not stat.S_ISREG(there.st_mode) or there.st_nlink > 1:
        os.close(handle)
        raise RunError(f"{path} is not a file of squid score; remove it.")
    return os.fdopen(handle, "r+b")


def fingerprint(files: Sequence[str | os.PathLike[str]]) -> str:
    """A digest of names, sizes and times: another one where a file was changed or replaced."""
    digest = hashlib.sha256()
    for file in files:
        try:
            there = os.stat(file)
            state = f"{there.st_size} {there.st_mtime_ns}"
        except OSError:
            state = "absent"
        digest.update(os.fsencode(file) + f"\0{state}\0".encode())
    return digest.hexdigest()
