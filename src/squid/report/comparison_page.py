"""The page that sets several runs side by side."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from squid.errors import DataError
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.metrics import LEVEL, MEASURES, Metrics
from squid.evaluation.paired import compare
from squid.evaluation.record import Evaluations
from squid.report import tables
from squid.report.figures import compared_roc_chart, compared_training_chart
from squid.report.figures.curves import Curve
from squid.report.page import Html, figure, join, note, page, section, table, tag
from squid.report.run_page import evaluate_first
from squid.report.style import PALETTE, Chart
from squid.run import Run


@dataclass(frozen=True)
class Entry:
    """One run of the page."""

    name: str
    run: Run
    group: str
    """Runs that differ in their seed only have one name."""
    record: Evaluations | None

    @property
    def metrics(self) -> Metrics | None:
        """At the threshold from held-out healthy images."""
        return self.record.final.metrics["healthy"] if self.record else None


class ComparisonPage:
    """Gathers a page; `charts` are the figures it shows."""

    def __init__(self, runs: Sequence[Run]) -> None:
        groups = _group_names(runs)
        self.entries = [
            Entry(name, run, group, read_evaluations(run))
            for name, run, group in zip(_names(runs), runs, groups, strict=True)
        ]
        self.measured = [entry for entry in self.entries if entry.metrics is not None]
        # A colour per recipe, in the order of the runs: seeds of one recipe share it.
        order = list(dict.fromkeys(groups))
        self.colours = {group: PALETTE[i % len(PALETTE)] for i, group in enumerate(order)}
        self.charts: list[Chart] = []

    def page(self) -> str:
        title = f"{len(self.entries)} runs compared"
        names = ", ".join(entry.name for entry in self.entries)
        head = join([tag("h1", title), tag("p", names, class_="lead")])
        parts = self._numbers(), self._pairs(), self._seeds(), self._curves()
        return page(f"{title} · SQUID report", head, *parts)

    def _numbers(self) -> Html:
        missing = [evaluate_first(e.run) for e in self.entries if e.metrics is None]
        # Only evaluated runs have a row; for the others the page says what to run.
        rows = [
            (
                e.name,
                e.group,
                e.run.recipe.seed,
                *(tables.interval(getattr(e.metrics, name)) for name in MEASURES),
            )
            for e in self.measured
        ]
        header = ("Run", "Recipe", "Seed", *tables.MEASURE_NAMES.values())
        caption = (
            f"Measures of the test images with {LEVEL:.0%} bootstrap intervals, at the threshold "
            "from held-out healthy images."
        )
        made = table(header, rows, caption=caption) if rows else Html()
        return section("How well they detect", made, *missing, self._warning(), self._roc())

    def _warning(self) -> Html:
        # Fingerprints of the data: equal ones mean the very same images.
        seen = {e.record.fingerprint for e in self.measured if e.record}
        if len(seen) < 2:
            return Html()
        return note("These runs saw different images, so their numbers do not compare strictly.")

    def _pairs(self) -> Html:
        """Every other run against the first one, where both scored the same images."""
        if len(self.measured) < 2:
            return Html()
        first, *others = self.measured
        rows = []
        for other in others:
            assert first.record is not None
            assert other.record is not None
            # Runs on other images have no difference that could be tested.
            with suppress(DataError):
                found = compare(first.record, other.record, "final")
                rows += [
                    (other.name, where, tables.signed(one.difference), tables.chance(one.p))
                    for where, one in found.named.items()
                ]
        if not rows:
            return Html()
        caption = (
            f"AUC of {first.name} minus that of the other run, on the same images: the paired test "
            "of DeLong with its 95 % interval, also within strata of what is known of the images."
        )
        header = ("Against", "Images", "Difference", "p")
        return section("Paired", table(header, rows, caption=caption))

    def _roc(self) -> Html:
        if not self.measured:
            return Html()
        curves = [
            Curve(
                self._roc_label(e.group),
                e.record.final.array,
                e.record.images.labels,
                self.colours[e.group],
            )
            for e in self.measured
            if e.record
        ]
        return self._show(compared_roc_chart(curves))

    def _roc_label(self, group: str) -> str:
        values = self._values(group, "auc")
        many = f", mean of {len(values)}" if len(values) > 1 else ""
        return f"{group}: AUC {np.mean(values):.3f}{many}"

    def _values(self, group: str, measure: str) -> list[float]:
        return [getattr(e.metrics, measure).value for e in self.measured if e.group == group]

    def _seeds(self) -> Html:
        counts = Counter(entry.group for entry in self.measured)
        rows = [
            (group, count, *(_spread(self._values(group, name)) for name in MEASURES))
            for group, count in counts.items()
            if count > 1
        ]
        # Without a second seed there is no spread to show.
        if not rows:
            return Html()
        header = ("Recipe", "Seeds", *tables.MEASURE_NAMES.values())
        caption = "Mean ± sample standard deviation over the seeds of a recipe."
        return section("Over seeds", table(header, rows, caption=caption))

    def _curves(self) -> Html:
        histories = {e.name: e.run.history for e in self.entries if e.run.history}
        if not histories:
            return Html()
        colours = {entry.name: self.colours[entry.group] for entry in self.entries}
        return section("Training", self._show(compared_training_chart(histories, colours)))

    def _show(self, chart: Chart) -> Html:
        self.charts.append(chart)
        return figure(chart)


def _names(runs: Sequence[Run]) -> list[str]:
    """Folder names, or whole paths where several folders have one name."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]


def _group_names(runs: Sequence[Run]) -> list[str]:
    # Recipes are compared without their seed; reversed, so that the first run of each stays.
    keys = [_key(run) for run in runs]
    first = dict(reversed(list(zip(keys, runs, strict=True))))
    plain = {key: run.recipe.title or run.recipe.method.name for key, run in first.items()}
    often = Counter(plain.values())
    # Different recipes of one title are distinguished by the folder of their first run.
    distinct = {
        key: name if often[name] == 1 else f"{name} ({first[key].name})"
        for key, name in plain.items()
    }
    return [distinct[key] for key in keys]


def _key(run: Run) -> str:
    """The recipe without its seed."""
    return run.recipe.model_copy(update={"seed": 0}).to_toml()


def _spread(values: Sequence[float]) -> Html:
    return join([f"{np.mean(values):.3f} ", tag("small", f"± {np.std(values, ddof=1):.3f}")])
