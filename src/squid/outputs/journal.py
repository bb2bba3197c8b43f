"""Scores on disk as they come: one line of JSON per image, in the order of the inputs.

A killed command finds its lines again and goes on after the last complete one. The journal lies
beside the file that will be made of it, is locked by its writer, and is removed at the end. Its
lines come from a disk, so each is checked before it is taken for a result.
"""

import hashlib
import json
import math
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
from squid.durable import locked, open_itself
from squid.errors import RunError

KINDS = SCORED, NOT_APPLICABLE, SKIPPED, LEFT_OUT = range(4)


class Journal:
    """The scored images of one command. Memory holds a score and an offset for each."""

    def __init__(
        self, file: BinaryIO, inputs: Mapping[str, object], sources: Sequence[str] = ()
    ) -> None:
        """Lines that are there already are kept if they were made from the same `inputs`, and
        follow `sources`, which are all that will be scored."""
        self._file = file
        self._kinds, self._scores, self._offsets = array("b"), array("d"), array("q")
        self._warned = array("b")
        header = json.dumps(inputs, sort_keys=True).encode() + b"\n"
        file.seek(0)
        self.replaced = (first := file.readline()) not in (b"", header)
        """Whether it held lines of other inputs, which are gone."""
        if first == header:
            self._read_lines(sources)
        else:
            file.seek(0)
            file.truncate()
            file.write(header)
        self.resumed = len(self)
        """Images that were scored before."""

    def __len__(self) -> int:
        return len(self._kinds)

    def _read_lines(self, sources: Sequence[str]) -> None:
        """The complete lines up to the first that is not what `add` writes of the source at its
        place; from there on, such as in what a killed writer left of a line, all is cut off."""
        end = self._file.tell()
        for source, line in zip(sources, self._file, strict=False):
            record = _parse(line)
            if record is None or not _is_sound(record, source):
                break
            self._note(record, end)
            end += len(line)
        self._file.seek(end)
        self._file.truncate()

    def _note(self, record: Mapping[str, Any], offset: int) -> None:
        self._kinds.append(record["kind"])
        self._scores.append(0.0 if record["score"] is None else record["score"])
        self._offsets.append(offset)
        self._warned.append(bool(record["warnings"]))

    def add(self, scored: Scores, sources: Sequence[str]) -> None:
        """Images, and files that were skipped or left out, in the order of `sources`."""
        found = {
            one.source: _record(NOT_APPLICABLE if one.score is None else SCORED, one)
            for one in scored.images
        }
        # A file that was not read has a line too: every source is accounted for.
        for kind, others in ((SKIPPED, scored.skipped), (LEFT_OUT, scored.left_out)):
            for source, reason in others:
                found[source] = _record(kind, ScoredImage(source, None, not_applicable=reason))
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
            yield ScoredImage(
                record["source"],
                record["score"],
                tuple(record["steps"]),
                record["reason"],
                tuple(record["warnings"]),
            )

    def reasons(self, kind: int) -> Iterator[tuple[str, str]]:
        """Inputs of a kind that has no score, each with the reason."""
        for place in self._of(kind) if len(self) else ():
            record = self._read(int(place))
            yield record["source"], record["reason"]

    def warned(self) -> Iterator[str]:
        """The images with which something may be wrong, in the order of the inputs."""
        for place in np.flatnonzero(np.frombuffer(self._warned, np.int8)) if len(self) else ():
            yield self._read(int(place))["source"]

    def count(self, kind: int) -> int:
        return self._kinds.count(kind)

    def _of(self, kind: int) -> NDArray[np.int64]:
        return np.flatnonzero(np.frombuffer(self._kinds, np.int8) == kind)

    def _read(self, place: int) -> dict[str, Any]:
        self._file.seek(self._offsets[place])
        record: dict[str, Any] = json.loads(self._file.readline())
        return record


def _record(kind: int, one: ScoredImage) -> dict[str, Any]:
    """What a line holds."""
    return {
        "kind": kind,
        "source": one.source,
        "score": one.score,
        "steps": one.steps,
        "warnings": one.warnings,
        "reason": one.not_applicable,
    }


def _parse(line: bytes) -> dict[str, Any] | None:
    """What a complete line holds; None where it is no object."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_sound(record: dict[str, Any], source: str) -> bool:
    """Whether a line is one of this source, with a finite score exactly where it is scored."""
    match record:
        case {
            "kind": int(kind),
            "source": str(name),
            "score": score,
            "steps": [*steps],
            "warnings": [*warnings],
            "reason": str(),
        }:
            scored = isinstance(score, float) and math.isfinite(score)
            return (
                kind in KINDS
                and not isinstance(kind, bool)
                and name == source
                and (scored if kind == SCORED else score is None)
                and all(isinstance(text, str) for text in (*steps, *warnings))
            )
    return False


@contextmanager
def open_journal(
    target: Path | None, inputs: Mapping[str, object], sources: Sequence[str] = ()
) -> Iterator[Journal]:
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
            journal = Journal(file, inputs, sources)
            try:
                yield journal
            except BaseException:
                if not len(journal):
                    path.unlink()
                raise
            path.unlink()


def _open(path: Path) -> BinaryIO:
    """A new or kept journal; a link that was planted in its place is not followed."""
    handle = open_itself(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
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
