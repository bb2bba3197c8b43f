"""The results of one scoring: predictions in order, how they were flagged, what was not scored.

Whatever is made of results (a table, CSV, JSON, a page, DICOM files) takes a `Results`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from squid.calibration import Calibration, percent
from squid.calibration.false_discovery import ties_needed
from squid.data.decode import OnError
from squid.data.inputs import Opened
from squid.detector import Detector, Prediction
from squid.errors import ConfigError
from squid.outputs.journal import LEFT_OUT, NOT_APPLICABLE, SCORED, SKIPPED, Journal
from squid.run import OWN_CALIBRATION
from squid.version import __version__

AT_ONCE = 1024
"""Predictions made at a time: few enough to hold, enough to be quick."""


@dataclass(frozen=True)
class Flagging:
    """How images are flagged."""

    threshold: float | None
    """From this score on; infinite where none is flagged, None without a calibration."""
    rate: float | None = None
    """The false-positive rate that the threshold keeps."""
    confidence: float | None = None
    """The share of held-out sets for which it keeps it; on average over them if None."""
    false_discovery_rate: float | None = None
    """The expected share of healthy images among those flagged, where that set the threshold."""
    meaning: str = ""
    """What the threshold means, in words."""
    notes: tuple[str, ...] = ()
    """What a user must know of it."""


@dataclass(frozen=True)
class Counts:
    """Every input is in one of the four."""

    scored: int
    skipped: int
    left_out: int
    not_applicable: int

    @property
    def found(self) -> int:
        return self.scored + self.skipped + self.left_out + self.not_applicable

    def __str__(self) -> str:
        return (
            f"{self.found:,} found = {self.scored:,} scored + {self.skipped:,} skipped + "
            f"{self.left_out:,} left out + {self.not_applicable:,} not applicable"
        )


@dataclass(frozen=True)
class About:
    """What scored: in every file of results, so that a file alone says what it means."""

    run: str
    version: str
    digest: str
    """SHA-256 of the run's weights."""
    method: str
    calibration: str
    """The site's name; `run` for the run's own."""


class Results:
    """Predictions with their context; they stay on disk and are read as often as needed."""

    def __init__(
        self, detector: Detector, journal: Journal, flagging: Flagging, about: About, opened: Opened
    ) -> None:
        self.flagging, self.about = flagging, about
        self._detector, self._journal, self._opened = detector, journal, opened
        self.counts = Counts(
            scored=journal.count(SCORED),
            skipped=journal.count(SKIPPED),
            left_out=len(opened.left_out) + journal.count(LEFT_OUT),
            not_applicable=journal.count(NOT_APPLICABLE),
        )

    def __repr__(self) -> str:
        return f"Results({self.counts})"

    def predictions(self) -> Iterator[Prediction]:
        """The most anomalous first, images without a score last."""
        images = self._journal.images()
        while some := list(islice(images, AT_ONCE)):
            yield from self._detector.interpret(some, self.flagging.threshold)

    def skipped(self) -> Iterator[tuple[str, str]]:
        """Files that could not be read, each with the reason."""
        return self._journal.reasons(SKIPPED)

    def left_out(self) -> Iterator[tuple[str, str]]:
        """Files of a folder that are no images, and DICOM objects that are no radiographs, each
        with the reason."""
        yield from self._opened.left_out
        yield from self._journal.reasons(LEFT_OUT)

    def not_applicable(self) -> Iterator[tuple[str, str]]:
        """Images without a score, each with the reason."""
        return self._journal.reasons(NOT_APPLICABLE)

    def warned(self) -> Iterator[str]:
        """Images with which something may be wrong, such as that they are nearly black."""
        return self._journal.warned()

    @property
    def smallest_difference(self) -> float:
        """Difference of the two nearest unequal scores, for a table in which neighbours differ; 1
        where there is none."""
        gaps = np.diff(np.unique(self._journal.scores))
        return float(gaps.min()) if len(gaps) else 1.0


def score_into(
    journal: Journal,
    detector: Detector,
    opened: Opened,
    *,
    on_error: OnError,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Score the images that the journal does not hold yet."""
    # Its lines are in the order of the files, so those that are left are the last ones.
    done = len(journal)
    rest = replace(opened, content=opened.content[done:], sources=opened.sources[done:])

    def all_of_them(some: int, _: int) -> None:
        if progress is not None:
            progress(done + some, len(opened))

    for scored in detector.stream(rest, on_error=on_error, progress=all_of_them):
        some = len(scored.images) + len(scored.skipped) + len(scored.left_out)
        journal.add(scored, opened.sources[len(journal) : len(journal) + some])


def flag_by_rate(detector: Detector, rate: float | None = None) -> Flagging:
    """At a false-positive rate, by default that of the calibration."""
    if not detector.calibration.heldout:
        if rate is not None:
            detector.operating_point(rate)  # refuses, with the remedy
        return Flagging(None, notes=("The run is not calibrated, so no image is flagged.",))
    point = detector.operating_point(rate)
    notes = (point.note,) if point.note else ()
    return Flagging(
        point.threshold, point.rate, point.confidence, meaning=point.meaning, notes=notes
    )


def flag_by_threshold(threshold: float) -> Flagging:
    """At a score that the user chose."""
    if not math.isfinite(threshold):
        raise ConfigError(f"A threshold is a number, not {threshold:g}.")
    return Flagging(threshold, meaning="chosen by hand")


def flag_by_false_discovery(calibration: Calibration, journal: Journal, share: float) -> Flagging:
    """So that at most `share` of the flagged images are expected to be healthy."""
    scores = journal.scores
    threshold = calibration.false_discovery_threshold(scores, share)
    needed = ties_needed(calibration.heldout, len(scores), share)
    meaning = f"at most {percent(share)} of the flagged images are expected to be healthy"
    # P-values are multiples of one share: too few held-out images can make the goal unreachable.
    notes: tuple[str, ...] = ()
    if needed > 1 and math.isinf(threshold):
        notes = (
            f"The smallest p-value of {calibration.heldout} held-out images is 1 in "
            f"{calibration.heldout + 1}: among {len(scores)} images, none is flagged at a "
            f"false-discovery rate of {percent(share)} unless at least {needed} have it.",
        )
    return Flagging(threshold, false_discovery_rate=share, meaning=meaning, notes=notes)


def describe(run: Path, detector: Detector, calibration: str | None) -> About:
    """What scored, for the files of its results."""
    return About(
        run=str(run),
        version=__version__,
        digest=detector.digest,
        method=detector.recipe.method.name,
        calibration=calibration or OWN_CALIBRATION,
    )
