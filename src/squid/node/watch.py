"""`squid watch`: each file that comes to rest in a folder is scored, once, and its result written.

A result is on the disk before its input moves to `done`. What was being scored when the program was
killed is scored again by the next one, into the same file: its name and its content depend on the
input and the detector only. It is scored alone then, and given up after two attempts: a file that
crashes a decoder costs no other file its result.
"""

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from squid.data.walk import why_no_image
from squid.detector import Detector, Prediction
from squid.durable import locked, write_text
from squid.errors import ConfigError, RunError
from squid.node.attempts import MOST
from squid.node.inbox import Inbox, Taken, nested, shortened
from squid.outputs.files import finite, record
from squid.outputs.journal import open_journal
from squid.outputs.names import portable
from squid.outputs.results import About, Flagging, Results, score_into

AT_ONCE = 16
"""Files that are scored at a time."""
SHORTEST, PAUSE = 0.1, 1.0
"""Seconds between two looks at the folder, at least and at most."""
FULL = (errno.ENOSPC, errno.EDQUOT)
GIVEN_UP = (
    "It ended the program twice: it was being scored each time. Where something else ended the "
    "program, move the file back."
)


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    name: str
    """Its path in the folder when it came."""
    prediction: Prediction | None
    """None where it failed or was left out."""
    reason: str = ""
    """Why it failed or was left out."""
    failed: bool = False
    """Whether it could not be read. What is no image, as a report or a text, is left out
    instead."""


class Watch:
    """A detector and the folder that it scores; `dicom` also writes DICOM results, and `gsps`
    presentation states among them."""

    def __init__(
        self,
        detector: Detector,
        flagging: Flagging,
        about: About,
        folder: Path,
        out: Path,
        *,
        still: float = 5.0,
        dicom: bool = False,
        gsps: bool = False,
        report: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        if out.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{out} lies in {folder}, so results would be scored; move it out.")
        self.inbox = Inbox(folder, still)
        self.out, self.dicom, self.gsps, self.report = out, dicom, gsps, report
        self._detector, self._flagging, self._about = detector, flagging, about
        out.mkdir(parents=True, exist_ok=True)

    def run(self, stop: Event, *, once: bool = False) -> int:
        """Score what comes until `stop` is set or, with `once`, what is there; gives the number of
        files that were left because they were still changing."""
        pause = self.inbox.still if once else max(SHORTEST, min(PAUSE, self.inbox.still))
        with locked(self.inbox.lock, str(self.inbox.folder)), _not_full(self.out):
            self._resume(stop)
            self._look(stop)
            while not stop.wait(pause):
                self._look(stop)
                if once:
                    break
        return self.inbox.waiting

    def _resume(self, stop: Event) -> None:
        """Score what the last program left, each file alone: one of them may have ended it."""
        for one in self.inbox.left_over():
            if stop.is_set():
                return  # the others are scored at the next start
            if self.inbox.attempts.of(one.name) >= MOST:
                self._fail(one, GIVEN_UP)
                self.inbox.attempts.forget([one.name])
            else:
                self._score([one])

    def _look(self, stop: Event) -> None:
        """Score what has come to rest."""
        names = self.inbox.look()
        for start in range(0, len(names), AT_ONCE):
            if not stop.is_set():
                self._score(self.inbox.take(names[start : start + AT_ONCE]))

    def _score(self, taken: Sequence[Taken]) -> None:
        files = {}
        for one in taken:
            if not one.is_file:
                self._fail(one, "It is a link or a device, which is not opened.")
            elif reason := _why_no_image(one):
                self._leave_out(one, reason)
            else:
                files[str(one.path)] = one
        if files:
            with self.inbox.attempts.counted([one.name for one in files.values()]):
                self._score_files(files)

    def _score_files(self, files: dict[str, Taken]) -> None:
        opened = self._detector.open([one.path for one in files.values()])
        with open_journal(None, {}) as journal:
            score_into(journal, self._detector, opened, on_error="skip")
            results = Results(self._detector, journal, self._flagging, self._about, opened)
            refused = self._write_dicom(results) if self.dicom else {}
            for prediction in results.predictions():
                self._finish(files[prediction.source], prediction, refused)
            for source, reason in results.left_out():
                self._leave_out(files[source], reason)
            for source, reason in results.skipped():
                self._fail(files[source], reason.replace(source, str(files[source].name)))

    def _write_dicom(self, results: Results) -> dict[str, str]:
        """DICOM results of the images; gives those that can have none, each with the reason."""
        from squid.dicom.files import write_files

        folder = self.out / "dicom"
        return dict(write_files(self._detector, results, folder, gsps=self.gsps).refused)

    def _finish(self, one: Taken, prediction: Prediction, refused: dict[str, str]) -> None:
        """Write the result of an image."""
        about = {
            "threshold": finite(self._flagging.threshold),
            "rate": self._flagging.rate,
            "meaning": self._flagging.meaning,
            "calibration": self._about.calibration,
        }
        if self.dicom:
            reason = refused.get(prediction.source, "").replace(prediction.source, str(one.name))
            about["dicom"] = portable(reason or "written") if prediction.score is not None else ""
        self._write(one, {**record(prediction, steps=True), **about})
        self.report(Outcome(str(one.name), prediction))

    def _leave_out(self, one: Taken, reason: str) -> None:
        """Write that a file is no image to be scored, which is no fault of it."""
        nothing = Prediction(str(one.name), None, None, None, None, not_applicable=reason)
        self._write(one, {**record(nothing, steps=False), "status": "left out"})
        self.report(Outcome(str(one.name), None, reason))

    def _write(self, one: Taken, result: dict[str, Any]) -> None:
        """Write a result, then move its input to `done`."""
        digest = one.digest()
        about = {
            "image": portable(str(one.name)),
            "sha256": digest,
            "model": self._about.digest,
            "version": self._about.version,
        }
        write_text(self._result(one, digest), json.dumps({**result, **about}, indent=2) + "\n")
        self.inbox.finish(one, digest)

    def _fail(self, one: Taken, reason: str) -> None:
        self.inbox.fail(one, portable(reason))
        self.report(Outcome(str(one.name), None, reason, failed=True))

    def _result(self, one: Taken, digest: str) -> Path:
        """The place of a result: that of its input, unless another input of that name has it."""
        place = nested(self.out, one.name)
        plain = place.with_name(f"{shortened(place.name)}.json")
        if not plain.exists() or _digest_in(plain) == digest:
            return plain
        return place.with_name(f"{shortened(place.name)}-{digest[:12]}.json")


def _why_no_image(one: Taken) -> str:
    """Why a file is left out, as in a folder that is scored; '' where it is scored."""
    try:
        return why_no_image(one.path)
    except OSError:
        return ""  # scoring says why it cannot be read


def _digest_in(result: Path) -> str:
    """The digest of the input of a result; '' where the file is another one."""
    try:
        return str(json.loads(result.read_text("utf-8"))["sha256"])
    except (ValueError, KeyError, TypeError):
        return ""


@contextmanager
def _not_full(out: Path) -> Iterator[None]:
    """A full disk ends the watch in a sentence; the file at hand stays where it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise RunError(
            f"There is no space left for results in {out}; make room and start again: no file is "
            "lost, and scoring goes on where it stopped."
        ) from None
