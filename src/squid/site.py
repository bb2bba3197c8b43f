"""A calibration for a site, beside the run's own, and how the two differ."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from squid.calibration import Calibration, Drift, OperatingPoint, calibrate
from squid.calibration.facts import image_facts
from squid.calibration.groups import GroupRate, flagged_by_others, group_rates
from squid.calibration.operating_point import check_confidence, check_rate
from squid.config import Device
from squid.data.base import Progress
from squid.data.decode import OnError
from squid.data.groups import Grouping, read_grouping
from squid.data.image_set import digests
from squid.data.inputs import Images
from squid.detector import Detector
from squid.errors import ConfigError, DataError, RunError
from squid.run import OWN_CALIBRATION, Run

FEWEST = 20
"""Healthy images that a calibration takes at least."""
CONFIDENCE = 0.95
"""With which a site's threshold keeps its rate, by default."""


@dataclass(frozen=True)
class Comparison:
    """A calibration that the run has already, at the site."""

    name: str
    """`run` for the run's own."""
    point: OperatingPoint
    flagged: int
    """Healthy images of the site that it flags."""
    drift: Drift
    """The site's scores and images against those of the calibration."""
    unseen: float
    """The false-positive rate of its threshold after the smallest shift that the drift test would
    have found."""


@dataclass(frozen=True)
class Site:
    """What was measured at a site."""

    name: str
    calibration: Calibration
    point: OperatingPoint
    """The site's threshold."""
    images: tuple[str, ...]
    scores: NDArray[np.float64]
    """(n,) of `images`, which are healthy."""
    skipped: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""
    left_out: tuple[tuple[str, str], ...]
    """Paths that were not taken for images, and images without a score, each with the reason."""
    comparison: Comparison | None
    """The run's own; None where it has no held-out scores."""
    others: tuple[Comparison, ...] = ()
    """Those of sites; the one of the same name is what the new calibration replaces."""
    unread: tuple[tuple[str, str], ...] = ()
    """Those of sites that cannot be read, each with the reason."""
    groups: tuple[GroupRate, ...] = ()
    """What a threshold set on all other images flags in each group, where groups were asked for."""


def calibrate_site(
    out: Run | Path | str,
    healthy: Images,
    *,
    name: str,
    rate: float | None = None,
    confidence: float | None = CONFIDENCE,
    by: str | None = None,
    table: Path | None = None,
    few: bool = False,
    save: bool = True,
    overwrite: bool = False,
    on_error: OnError = "raise",
    device: Device = "auto",
    progress: Progress | None = None,
) -> Site:
    """Measure and save a calibration on healthy images of a site, beside the run's own.

    `by` compares groups: by a column of the CSV file `table`, or by what DICOM headers say. With
    fewer than 20 images it is refused unless `few`; without `save` it is only measured.
    """
    # Every mistake that can be found without a score, before the images are scored.
    if rate is not None:
        check_rate(rate)
    check_confidence(confidence)
    if by is None and table is not None:
        raise ConfigError(f"Name the column of {table} that holds the groups, with --by.")
    grouping = None if by is None else read_grouping(by, table)
    run = Run.open(out)
    if save:
        run.check_site(name, overwrite=overwrite)
    detector = Detector.load(run, device=device)
    known, unread = _known(run)
    site = measure_site(
        detector,
        healthy,
        name=name,
        rate=rate,
        confidence=confidence,
        grouping=grouping,
        few=few,
        known=known,
        on_error=on_error,
        progress=progress,
    )
    if save:
        run.save_site_calibration(name, site.calibration, overwrite=overwrite)
    return replace(site, unread=unread)


def _known(run: Run) -> tuple[dict[str, Calibration], tuple[tuple[str, str], ...]]:
    """The run's calibrations of sites by name, and those that cannot be read with the reason."""
    known, unread = {}, []
    for name in run.sites:
        try:
            known[name] = run.site_calibration(name)
        except RunError as error:
            unread.append((name, str(error)))
    return known, tuple(unread)


def measure_site(
    detector: Detector,
    healthy: Images,
    *,
    name: str,
    rate: float | None = None,
    confidence: float | None = CONFIDENCE,
    grouping: Grouping | None = None,
    few: bool = False,
    known: Mapping[str, Calibration],
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> Site:
    """Score healthy images of a site and compare them with those held out of the training, and with
    the `known` calibrations of sites."""
    if rate is None:
        rate = detector.recipe.false_positive_rate
    loaded = detector.read(healthy, on_error=on_error, progress=progress)
    reasons = loaded.not_applicable
    usable = [i for i, reason in enumerate(reasons) if not reason]
    _refuse_few(len(usable), few)
    images = tuple(loaded.sources[i] for i in usable)
    names = None if grouping is None else grouping.of(images, _folders(healthy))
    pixels = loaded.pixels[usable]
    _refuse_trained_on(detector.run, images, pixels)
    scores, facts = detector.score(pixels), image_facts(pixels)
    source = f"healthy images of {name}"
    calibration = calibrate(
        scores, scores, facts=facts, rate=rate, confidence=confidence, source=source
    )
    flagged = flagged_by_others(scores, rate, confidence)
    own, *others = [
        _compare(name, one, scores, facts, rate)
        for name, one in ((OWN_CALIBRATION, detector.calibration), *known.items())
    ]
    without = [(loaded.sources[i], reason) for i, reason in enumerate(reasons) if reason]
    return Site(
        name=name,
        calibration=calibration,
        point=calibration.operating_point(rate, confidence),
        images=images,
        scores=scores,
        skipped=loaded.skipped,
        left_out=(*loaded.left_out, *without),
        comparison=own,
        others=tuple(filter(None, others)),
        groups=() if names is None else tuple(group_rates(names, flagged)),
    )


def _folders(healthy: Images) -> list[Path]:
    """What was given by path: images may be named by their path below it."""
    given = healthy if isinstance(healthy, Sequence) and not isinstance(healthy, str) else [healthy]
    return [Path(one) for one in given if isinstance(one, (str, os.PathLike))]


def _compare(
    name: str,
    known: Calibration,
    scores: NDArray[np.float64],
    facts: Mapping[str, NDArray[np.float64]],
    rate: float,
) -> Comparison | None:
    if not known.heldout:
        return None
    point, drift = known.operating_point(rate, known.confidence), known.drift(scores, facts)
    heldout = np.asarray(known.heldout_scores)
    shifted = heldout + drift.smallest_shift * heldout.std()
    return Comparison(
        name=name,
        point=point,
        flagged=int((scores >= point.threshold).sum()),
        drift=drift,
        unseen=float((shifted >= point.threshold).mean()),
    )


def _refuse_trained_on(run: Run | None, images: Sequence[str], pixels: Tensor) -> None:
    """An error where the run was trained on some of the images, as far as it kept their digests."""
    known = frozenset() if run is None else run.training_images
    seen = [one for one, key in zip(images, digests(pixels), strict=True) if key in known]
    if seen:
        raise DataError(
            f"{len(seen)} of {len(images)} healthy images were trained on, for example {seen[0]}: "
            "such images score lower than new ones, so the threshold would be too low; leave them "
            "out."
        )


def _refuse_few(count: int, few: bool) -> None:
    if count < FEWEST and not few:
        raise DataError(
            f"{count} healthy images are too few: their highest score would be the threshold for "
            f"every rate below {100 / (count + 1):.0f} %, and one odd image would set it; give at "
            f"least {FEWEST}, better several hundred, or add --few."
        )
