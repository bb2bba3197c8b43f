"""The scores of a run's test images, and which of the images are worth a look."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from squid.data.image_set import ANOMALOUS, ImageSet
from squid.detector import Detector
from squid.report.figures import Example

SHOWN = 6
"""Images of a sheet."""
_MOST = 2 * SHOWN
_LETTERS = 20


@dataclass(frozen=True)
class Scored:
    """What `metrics.json` keeps of each test image."""

    names: Sequence[str]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    findings: Sequence[str]
    """'' where nothing is known."""

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> "Scored":
        kept = metrics["scores"]
        names = kept["name"]
        findings = kept["finding"] or [""] * len(names)
        return cls(names, np.array(kept["score"]), np.array(kept["label"]), findings)

    def truth(self, place: int) -> str:
        """What the image is known to show."""
        if self.labels[place] != ANOMALOUS:
            return "normal"
        return self.findings[place].replace("|", ", ") or "anomalous"


@dataclass(frozen=True)
class Chosen:
    """Images of one sheet."""

    name: str
    title: str
    caption: str
    places: list[int]


def choose(scored: Scored, threshold: float) -> list[Chosen]:
    """The extremes and the worst mistakes; a sheet without images is left out."""
    up = np.argsort(scored.scores, kind="stable")
    called, anomalous = scored.scores >= threshold, scored.labels == ANOMALOUS
    missed = [int(i) for i in up if anomalous[i] and not called[i]]
    alarms = [int(i) for i in up[::-1] if called[i] and not anomalous[i]]
    most, least = up[::-1][:SHOWN].tolist(), up[:SHOWN].tolist()
    worst = ", with the worst of each finding" if any(scored.findings) else ""
    below = f"Anomalous images below the threshold ({len(missed)} in all){worst}; lowest first."
    above = f"Normal images from the threshold on ({len(alarms)} in all); highest first."
    sheets = [
        Chosen("most-anomalous", "The most anomalous", "Highest scores of the test images.", most),
        Chosen("most-normal", "The most normal", "Lowest scores of the test images.", least),
        Chosen("missed", "Missed", below, one_of_each(missed, scored.findings)),
        Chosen("false-alarms", "False alarms", above, alarms[:SHOWN]),
    ]
    return [sheet for sheet in sheets if sheet.places]


def one_of_each(places: Sequence[int], findings: Sequence[str]) -> list[int]:
    """The first image with each finding, then the first others until a sheet is full."""
    first: dict[str, int] = {}
    for place in places:
        for finding in filter(None, findings[place].split("|")):
            first.setdefault(finding, place)
    kept = list(dict.fromkeys(first.values()))[:_MOST]
    others = [place for place in places if place not in kept]
    return sorted(kept + others[: max(SHOWN - len(kept), 0)], key=places.index)


def examples(
    detector: Detector, images: ImageSet, scored: Scored, places: Sequence[int]
) -> list[Example]:
    """Those images with what the method draws and where it looks."""
    pixels = images.pixels[list(places)]
    drawn = detector.reconstruct(pixels)
    heat = {kind: detector.explain(pixels, kind) for kind in detector.heatmap_kinds}
    return [
        Example(
            image=pixels[i, 0].numpy() / 255.0,
            title=_title(scored, place),
            reconstruction=None if drawn is None else drawn[i],
            heatmaps={kind: maps[i] for kind, maps in heat.items()},
            cells=None if images.cells is None else images.cells[place],
        )
        for i, place in enumerate(places)
    ]  # fmt: skip


def _title(scored: Scored, place: int) -> str:
    truth = textwrap.shorten(scored.truth(place), _LETTERS, placeholder=" …")
    return f"score {scored.scores[place]:#.4g}\n{truth}\n{shorten(scored.names[place])}"


def shorten(name: str) -> str:
    """A name that fits above a picture, its end kept because that tells files apart."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    half = _LETTERS // 2 - 1
    return plain if len(plain) <= _LETTERS else f"{plain[:half]}…{plain[-half - 1 :]}"
