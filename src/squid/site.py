"""A calibration for a site, beside the run's own, and how the two differ."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from squid.calibration import Calibration, Drift, OperatingPoint, calibrate
from squid.calibration.facts import image_facts
from squid.calibration.groups import GroupRate, group_rates
from squid.config import Device
from squid.data.base import Progress
from squid.data.decode import OnError
from squid.data.inputs import Images
from squid.data.tables import read_table
from squid.detector import Detector
from squid.errors import DataError
from squid.run import Run

FEWEST = 20
"""Healthy images that a calibration takes at least."""
CONFIDENCE = 0.95
"""With which a site's threshold keeps its rate, by default."""


@dataclass(frozen=True)
class Comparison:
    """The run's own threshold at the site."""

    point: OperatingPoint
    flagged: int
    """Healthy images of the site that it flags."""
    drift: Drift
    """The site's scores and images against those held out of the training."""
    unseen: float
    """The false-positive rate of the run's threshold after the smallest shift that the drift test
    would have found."""


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
    """None for a run without held-out scores of its own."""

    def by_group(self, groups: Sequence[str]) -> list[GroupRate]:
        """The share that the site's threshold flags in each group; (n,) the group of each image."""
        return group_rates(groups, self.scores >= self.point.threshold, self.point.rate)


def calibrate_site(
    out: Run | Path | str,
    healthy: Images,
    *,
    name: str,
    rate: float | None = None,
    confidence: float | None = CONFIDENCE,
    few: bool = False,
    save: bool = True,
    overwrite: bool = False,
    on_error: OnError = "raise",
    device: Device = "auto",
    progress: Progress | None = None,
) -> Site:
    """Measure and save a calibration on healthy images of a site, beside the run's own.

    With fewer than 20 images it is refused unless `few`; without `save` it is only measured.
    """
    run = Run.open(out)
    if save:
        run.check_site(name, overwrite=overwrite)
    detector = Detector.load(run, device=device)
    site = measure_site(
        detector,
        healthy,
        name=name,
        rate=rate,
        confidence=confidence,
        few=few,
        on_error=on_error,
        progress=progress,
    )
    if save:
        run.save_site_calibration(name, site.calibration, overwrite=overwrite)
    return site


def measure_site(
    detector: Detector,
    healthy: Images,
    *,
    name: str,
    rate: float | None = None,
    confidence: float | None = CONFIDENCE,
    few: bool = False,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> Site:
    """Score healthy images of a site and compare them with those held out of the training."""
    if rate is None:
        rate = detector.recipe.false_positive_rate
    loaded = detector.read(healthy, on_error=on_error, progress=progress)
    reasons = loaded.not_applicable or ("",) * len(loaded.sources)
    usable = [i for i, reason in enumerate(reasons) if not reason]
    _refuse_few(len(usable), few)
    pixels = loaded.pixels[usable]
    scores, facts = detector.score(pixels), image_facts(pixels)
    source = f"healthy images of {name}"
    calibration = calibrate(
        scores, scores, facts=facts, rate=rate, confidence=confidence, source=source
    )
    without = [(loaded.sources[i], reason) for i, reason in enumerate(reasons) if reason]
    return Site(
        name=name,
        calibration=calibration,
        point=calibration.operating_point(rate, confidence),
        images=tuple(loaded.sources[i] for i in usable),
        scores=scores,
        skipped=loaded.skipped,
        left_out=(*loaded.left_out, *without),
        comparison=_compare(detector.calibration, scores, facts, rate),
    )


def _compare(
    known: Calibration,
    scores: NDArray[np.float64],
    facts: Mapping[str, NDArray[np.float64]],
    rate: float,
) -> Comparison | None:
    if not known.heldout:
        return None
    point, drift = known.operating_point(rate), known.drift(scores, facts)
    heldout = np.asarray(known.heldout_scores)
    shifted = heldout + drift.smallest_shift * heldout.std()
    return Comparison(
        point=point,
        flagged=int((scores >= point.threshold).sum()),
        drift=drift,
        unseen=float((shifted >= point.threshold).mean()),
    )


def _refuse_few(count: int, few: bool) -> None:
    if count < FEWEST and not few:
        raise DataError(
            f"{count} healthy images are too few: their highest score would be the threshold for "
            f"every rate below {100 / (count + 1):.0f} %, and one odd image would set it; give at "
            f"least {FEWEST}, better several hundred, or add --few."
        )


def read_groups(table: Path, column: str, images: Sequence[str]) -> list[str]:
    """The value of a column for each image, from a CSV file with the columns `image` and `column`.
    An image is found by its path, or by its name where only one has it."""
    rows = read_table(table, "image", column)
    by_path = {str(Path(row["image"])): row[column] for row in rows}
    names = Counter(Path(row["image"]).name for row in rows)
    by_name = {Path(path).name: value for path, value in by_path.items()}
    groups = []
    for image in map(Path, images):
        group = by_path.get(str(image))
        if group is None and names[image.name] == 1:
            group = by_name[image.name]
        if group is None:
            raise DataError(f"{table} has no row for {image}.")
        groups.append(group or "?")
    return groups
