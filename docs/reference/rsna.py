"""RSNA's test images: every row within PA and within AP views, and where heatmaps point."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from squid.benchmark.localisation import heatmaps, hits
from squid.benchmark.summary import Line, Spread
from squid.evaluation.localisation import PRIORS
from squid.evaluation.paired import difference
from squid.evaluation.record import Result

RIVALS = ("ae_u", "mkd", "synthetic_lesions")
"""The best rows beside the fusion, which the paired test compares it with."""


def numbers(lines: Sequence[Line]) -> dict[str, str]:
    """Name -> text, as `docs/results.template` names them."""
    return dict(_numbers({(line.section, line.row): line for line in lines}))


def _numbers(lines: dict[tuple[str, str], Line]) -> Iterator[tuple[str, str]]:
    pa = [line for (section, _), line in lines.items() if section == "rsna_pa"]
    pa.sort(key=lambda line: -line.measure("auc").mean)
    yield "rsna test rows", "\n".join(_row(line, lines.get(("rsna_ap", line.row))) for line in pa)
    for section in ("rsna_pa", "rsna_ap"):
        best = lines[section, "fusion"]
        images = best.results[0].evaluations.images
        yield f"{section} normal", f"{int((images.labels == 0).sum()):,}"
        yield f"{section} anomalous", f"{int(images.labels.sum()):,}"
        yield f"{section} fusion hits", f"{hits(heatmaps(best)):.1f}"
        found = best.evaluations[0].localisation
        for name in PRIORS:
            yield f"{section} {name} hits", f"{100 * found[name].pointing.value:.1f}"
            yield f"{section} {name} pixels", f"{100 * found[name].auroc.value:.1f}"
        pixels = Spread.of(100 * one.auroc.value for one in heatmaps(best))
        yield f"{section} fusion pixels", f"{pixels:.1f}"
    for row in RIVALS:
        yield f"rsna_pa less {row}", _less(lines["rsna_pa", "fusion"], lines["rsna_pa", row])
    either = [one.rsna_class["either"].auc.value for one in lines["nih", "fusion"].evaluations]
    yield "nih fusion rsna either", f"{Spread.of(100 * value for value in either):.1f}"


def _row(pa: Line, ap: Line | None) -> str:
    title = pa.title + (" †" if pa.shortened else "")
    if pa.row == "fusion":
        title = f"**{title}**"
    pointing = [
        f"{hits(heatmaps(line)):.1f}" if line and heatmaps(line) else "" for line in (pa, ap)
    ]
    cells = [
        title,
        str(len(pa.seeds)),
        f"{pa.measure('auc'):.1f}",
        f"{pa.adjusted:.1f}" if pa.adjusted else "",
        pointing[0],
        f"{ap.measure('auc'):.1f}" if ap else "",
        f"{ap.adjusted:.1f}" if ap and ap.adjusted else "",
        pointing[1],
        f"{pa.training_seconds:.0f}",
        f"{1000 * pa.scoring_seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _less(one: Line, other: Line) -> str:
    """The difference of the AUCs by the paired test, with its interval."""
    images = one.results[0].evaluations.images
    groups = [""] * len(images.name)
    found = difference(_scores(one.results), _scores(other.results), images.labels, groups)
    assert found is not None
    value, low, high = (100 * part for part in dict(found.difference).values())
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _scores(results: Sequence[Result]) -> NDArray[np.float64]:
    return np.array([result["final"].array for result in results])  # (seeds, n)
