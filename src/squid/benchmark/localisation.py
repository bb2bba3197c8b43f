"""Where the heatmap of each row points, beside the maps that know no image."""

from collections.abc import Iterable, Sequence

from squid.benchmark.summary import Line, Spread
from squid.evaluation.localisation import PRIORS, Localisation

MEASURES = {
    "pointing": "Boxes hit",
    "auroc": "Pixel AUROC",
    "average_precision": "Pixel AP",
    "overlap": "Overlap",
}
NOTE = (
    "Percent, means over images with boxes. Boxes hit: the highest pixel lies in a box. Pixel "
    "AUROC and AP: pixels inside boxes against those outside. Overlap: of the boxes with the "
    "pixels that are higher than 95 % of those of healthy images. The mean box is that of the "
    "validation images."
)

Row = tuple[str, ...]


def localisation(lines: Sequence[Line]) -> tuple[Row, list[Row]] | None:
    """A header and its rows, the best heatmap first; None where no box is known."""
    found = [(line.title, maps) for line in lines if (maps := heatmaps(line))]
    found.sort(key=lambda pair: -hits(pair[1]).mean)
    # The priors know no image, so those of any row at the usual size are those of all.
    priors = max((one for line in lines for one in _measured(line)), key=_images, default={})
    found += [(f"prior: {name}", [priors[name]]) for name in PRIORS if name in priors]
    if not found:
        return None
    header = ("Heatmap", "Seeds", "Images", *MEASURES.values())
    return header, [_row(title, maps) for title, maps in found]


def heatmaps(line: Line) -> list[Localisation]:
    """The method's own heatmap, of each seed; empty for a method without one, and for selections
    other than the end of training."""
    return [one["method"] for one in _measured(line) if "method" in one]


def hits(maps: Iterable[Localisation]) -> Spread:
    """The share of images whose highest pixel lies in a box, in percent."""
    return Spread.of(100 * one.pointing.value for one in maps)


def _measured(line: Line) -> list[dict[str, Localisation]]:
    return [dict(one.localisation) for one in line.evaluations if one.localisation]


def _images(found: dict[str, Localisation]) -> int:
    return next(iter(found.values())).images


def _row(title: str, maps: Sequence[Localisation]) -> Row:
    measures = (Spread.of(100 * getattr(one, name).value for one in maps) for name in MEASURES)
    return (title, str(len(maps)), str(maps[0].images), *(f"{one:.1f}" for one in measures))
