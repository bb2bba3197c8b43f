"""The first screen of a report: what was found and missed, in counts, percent and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from squid.data.image_set import ANOMALOUS
from squid.evaluation.metrics import Estimate, Metrics
from squid.evaluation.percent import percent, percent_range, rate_percent
from squid.evaluation.record import TestImages
from squid.report.page import Html, table, tag

Array = NDArray[np.float64]

PICTURES = 2
"""Images of each group on the first screen."""


@dataclass(frozen=True)
class Counts:
    """Test images by what they show and whether they are flagged."""

    found: int
    missed: int
    false_alarms: int
    passed: int
    """Normal images that are not flagged."""

    @classmethod
    def of(cls, metrics: Metrics) -> "Counts":
        found = round(metrics.sensitivity.value * metrics.anomalous)
        passed = round(metrics.specificity.value * metrics.normal)
        return cls(found, metrics.anomalous - found, metrics.normal - passed, passed)


def cards(metrics: Metrics) -> Html:
    """AUC, found and false alarms, and the table of counts that the two come from."""
    counts = Counts.of(metrics)
    wanted = f", wanted {rate_percent(metrics.threshold.rate)}" if metrics.threshold.rate else ""
    alarms = Estimate(
        value=1 - metrics.specificity.value,
        low=1 - metrics.specificity.high,
        high=1 - metrics.specificity.low,
    )
    tiles = [
        _tile("AUC", f"{percent(metrics.auc.value)} %", _bounds(metrics.auc)),
        _tile(
            "Found",
            f"{counts.found} of {metrics.anomalous}",
            f"{percent(metrics.sensitivity.value)} % of anomalous images, "
            f"{_bounds(metrics.sensitivity)}",
        ),
        _tile(
            "False alarms",
            f"{counts.false_alarms} of {metrics.normal}",
            f"{percent(alarms.value)} % of normal images{wanted}, {_bounds(alarms)}",
        ),
        tag("div", confusion_table(counts), class_="tile"),
    ]
    return tag("div", *tiles, class_="tiles")


def _tile(name: str, value: str, below: str) -> Html:
    lines = tag("span", name), tag("b", value), tag("span", below)
    return tag("div", *lines, class_="tile")


def _bounds(estimate: Estimate) -> str:
    return f"95 % interval {percent_range(estimate.low, estimate.high)}"


def confusion_table(counts: Counts) -> Html:
    """Rows are what images show, columns what the detector says."""
    return table(
        ("Images", "Flagged", "Not flagged"),
        [
            ("Anomalous", f"{counts.found} found", f"{counts.missed} missed"),
            ("Normal", f"{counts.false_alarms} false alarms", counts.passed),
        ],
        caption="Test images at the threshold from held-out healthy ones.",
    )


@dataclass(frozen=True)
class Group:
    """Some images of the first screen."""

    name: str
    title: str
    caption: str
    places: list[int]


def choose_groups(images: TestImages, scores: Array, threshold: float) -> list[Group]:
    """Two images that were missed, two false alarms and two that were found: the clearest ones."""
    up: Sequence[int] = np.argsort(scores, kind="stable").tolist()
    anomalous, flagged = images.labels == ANOMALOUS, scores >= threshold
    missed = [i for i in up if anomalous[i] and not flagged[i]]
    alarms = [i for i in reversed(up) if flagged[i] and not anomalous[i]]
    found = [i for i in reversed(up) if flagged[i] and anomalous[i]]
    return [
        _group("first-missed", "Missed", missed, "the lowest scores of anomalous images"),
        _group("first-false-alarms", "False alarms", alarms, "the highest of normal images"),
        _group("first-found", "Found", found, "the highest of anomalous images"),
    ]


def _group(name: str, title: str, places: list[int], which: str) -> Group:
    shown = places[:PICTURES]
    caption = f"{len(shown)} of {len(places)}: {which}." if places else "None of the test images."
    return Group(name, title, caption, shown)
