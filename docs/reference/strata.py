"""ZhangLab's AUCs adjusted for sharpness in other ways than the tables do: with strata of fewer
images, and with strata merged until all images count."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from squid.benchmark.summary import Line, Spread
from squid.config import Selection
from squid.data.image_set import ANOMALOUS, NORMAL
from squid.evaluation.confounds import LEAST
from squid.evaluation.metrics import auc

ROWS: tuple[tuple[str, Selection], ...] = (
    ("ours", "final"),
    ("cutpaste", "final"),
    ("mkd", "final"),
    ("reference_1000", "best_epoch"),
    ("reference", "best_epoch"),
    ("mnad", "final"),
    ("patch_memae", "final"),
    ("memae", "final"),
)
"""The best rows of ZhangLab, and those that the adjustment moves most."""
LEASTS = (LEAST, 5, 1)
"""Images of each class that a stratum needs, the tables' number first."""
Labels = NDArray[np.int64]
Array = NDArray[np.float64]


def numbers(lines: Sequence[Line]) -> dict[str, str]:
    """Name -> text, as `docs/results.template` names them."""
    return dict(_numbers([line for line in lines if line.section == "zhanglab"]))


def _numbers(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    images = lines[0].results[0].evaluations.images
    known = {least: _counting(images.labels, images.strata["sharpness"], least) for least in LEASTS}
    groups = [*known.values(), _merged(images.labels, images.strata["sharpness"])]
    yield "strata least", str(LEAST)
    yield "strata anomalous", str(int(images.labels.sum()))
    yield "strata counted", str(_anomalous(images.labels, known[LEAST]))
    for least in LEASTS[1:]:
        yield f"strata counted {least}", str(_anomalous(images.labels, known[least]))
    rows = []
    for row, selection in ROWS:
        (line,) = (one for one in lines if (one.row, one.selection) == (row, selection))
        cells = [
            Spread.of(_within(one.array, images.labels, group) for one in line.evaluations)
            for group in groups
        ]
        texts = [f"{line.measure('auc'):.1f}", *(f"{cell:.1f}" for cell in cells)]
        rows.append(f"| {line.title} | {' | '.join(texts)} |")
    yield "strata rows", "\n".join(rows)


def _counting(labels: Labels, groups: Sequence[str], least: int) -> list[str]:
    """The groups, '' where one has fewer images of a class."""
    found = np.array(groups)
    small = {
        name
        for name in set(groups)
        if min((labels[found == name] == kind).sum() for kind in (NORMAL, ANOMALOUS)) < least
    }
    return ["" if name in small else name for name in groups]


def _merged(labels: Labels, groups: Sequence[str]) -> list[str]:
    """Deciles, each too small one together with the next."""
    found, names, begun = np.array(groups), {}, ""
    for name in sorted(set(groups)):
        begun = begun or name
        names[name] = begun
        inside = np.isin(found, [one for one, first in names.items() if first == begun])
        if min((labels[inside] == kind).sum() for kind in (NORMAL, ANOMALOUS)) >= LEAST:
            begun = ""
    assert not begun, "the last decile would have to join the one before"
    return [names[name] for name in groups]


def _anomalous(labels: Labels, groups: Sequence[str]) -> int:
    return int(labels[np.array(groups) != ""].sum())


def _within(scores: Array, labels: Labels, groups: Sequence[str]) -> float:
    """The mean AUC within groups, weighted by anomalous images, in percent."""
    found = np.array(groups)
    inside = [found == name for name in sorted(set(groups) - {""})]
    aucs = [auc(scores[one], labels[one]) for one in inside]
    return 100 * float(np.average(aucs, weights=[labels[one].sum() for one in inside]))
