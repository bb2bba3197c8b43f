"""Which test images a report shows, and what the method makes of them."""

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from squid.data.image_set import ANOMALOUS, ImageSet
from squid.detector import Detector
from squid.evaluation.record import TestImages
from squid.report.figures.images import Example

Array = NDArray[np.float64]

SHOWN = 6
"""Images of a sheet."""
_MOST = 2 * SHOWN
_LETTERS = 20


@dataclass(frozen=True)
class Sheet:
    """The images of one sheet."""

    name: str
    title: str
    caption: str
    places: list[int]


def choose(images: TestImages, scores: Array, threshold: float) -> list[Sheet]:
    """The extremes and the worst mistakes; a sheet without images is left out."""
    # Ascending and stable, so that equal scores come in the same order in every report.
    up = np.argsort(scores, kind="stable")
    flagged, anomalous = scores >= threshold, images.labels == ANOMALOUS
    missed = [int(i) for i in up if anomalous[i] and not flagged[i]]
    alarms = [int(i) for i in up[::-1] if flagged[i] and not anomalous[i]]
    most, least = up[::-1][:SHOWN].tolist(), up[:SHOWN].tolist()
    worst = ", with the worst of each finding" if any(images.finding) else ""
    below = f"Anomalous images below the threshold ({len(missed)} in all){worst}; lowest first."
    above = f"Normal images from the threshold on ({len(alarms)} in all); highest first."
    sheets = [
        Sheet("most-anomalous", "The most anomalous", "Highest scores of the test images.", most),
        Sheet("most-normal", "The most normal", "Lowest scores of the test images.", least),
        Sheet("missed", "Missed", below, one_of_each(missed, images.finding)),
        Sheet("false-alarms", "False alarms", above, alarms[:SHOWN]),
    ]
    return [sheet for sheet in sheets if sheet.places]


def one_of_each(places: Sequence[int], findings: Sequence[str]) -> list[int]:
    """The first image with each finding, then the first others until a sheet is full."""
    first: dict[str, int] = {}
    for place in places:
        for finding in filter(None, findings[place].split("|")):
            first.setdefault(finding, place)
    # One image may be the first of several findings; a sheet holds it once.
    kept = list(dict.fromkeys(first.values()))[:_MOST]
    others = [place for place in places if place not in kept]
    return sorted(kept + others[: max(SHOWN - len(kept), 0)], key=places.index)


def examples(
    detector: Detector, images: ImageSet, titles: Sequence[str], places: Sequence[int]
) -> list[Example]:
    """Those images with their reconstructions and heatmaps."""
    pixels = images.pixels[list(places)]
    reconstructions = detector.reconstruct(pixels)
    heat = {kind: detector.explain(pixels, kind) for kind in detector.heatmap_kinds}
    return [
        Example(
            image=pixels[i, 0].numpy() / 255.0,
            title=titles[place],
            reconstruction=None if reconstructions is None else reconstructions[i],
            heatmaps={kind: maps[i] for kind, maps in heat.items()},
            cells=None if images.cells is None else images.cells[place],
        )
        for i, place in enumerate(places)
    ]  # fmt: skip


def plain(example: Example, kind: str | None) -> Example:
    """The image with one kind of heatmap and no reconstruction."""
    heat = {} if kind is None else {kind: example.heatmaps[kind]}
    return replace(example, reconstruction=None, heatmaps=heat)


def without(example: Example, kinds: Collection[str]) -> Example:
    """The image without some kinds of heatmaps."""
    kept = {kind: heat for kind, heat in example.heatmaps.items() if kind not in kinds}
    return replace(example, heatmaps=kept)


def example_titles(images: TestImages, scores: Array) -> list[str]:
    """Score, what the image shows, and its name, for every image."""
    return [
        "\n".join(
            (
                f"score {score:#.4g}",
                textwrap.shorten(images.truth(place), _LETTERS, placeholder=" …"),
                shorten(images.name[place]),
            )
        )
        for place, score in enumerate(scores)
    ]


def shorten(name: str) -> str:
    """A name that fits above a picture, its end kept because that tells files apart."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    half = _LETTERS // 2 - 1
    return plain if len(plain) <= _LETTERS else f"{plain[:half]}…{plain[-half - 1 :]}"
