"""The page that sets several runs side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from squid.errors import DataError
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.metrics import LEVEL, MEASURES, Metrics
from squid.evaluation.paired import compare
from squid.evaluation.percent import percent, rate_percent
from squid.evaluation.record import Evaluations
from squid.report import tables
from squid.report.cautions import cautions
from squid.report.figures import compared_roc_chart, compared_training_chart
from squid.report.figures.curves import Curve
from squid.report.overview import Counts
from squid.report.page import Html, alarm, details, figure, join, note, page, section, table, tag
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
        names = _names(runs)
        groups = _group_names(runs, names)
        self.entries = [
            Entry(name, run, group, read_evaluations(run))
            for name, run, group in zip(names, runs, groups, strict=True)
        ]
        self.measured = [entry for entry in self.entries if entry.metrics is not None]
        # A colour per recipe, in the order of the runs: seeds of one recipe share it.
        order = list(dict.fromkeys(groups))
        self.colours = {group: PALETTE[i % len(PALETTE)] for i, group in enumerate(order)}
        self.charts: list[Chart] = []
        self.cautions = self._cautions()

    @property
    def has_pictures(self) -> bool:
        """A comparison never shows images, so none can be lost."""
        return True

    def page(self) -> str:
        title = f"{len(self.entries)} runs compared"
        names = ", ".join(entry.name for entry in self.entries)
        head = join([tag("h1", title), tag("p", names, class_="lead"), *map(alarm, self.cautions)])
        parts = (
            self._numbers(),
            self._pairs(),
            self._differences(),
            self._seeds(),
            self._curves(),
        )
        return page(f"{title} · SQUID report", head, *parts)

    def _cautions(self) -> list[str]:
        return [
            f"{entry.name}: {text}"
            for entry in self.measured
            for text in cautions(entry.record, None)
        ]

    def _numbers(self) -> Html:
        missing = [evaluate_first(e.run) for e in self.entries if e.metrics is None]
        # Only evaluated runs have a row; for the others the page says what to run.
        if not self.measured:
            return section("How well they detect", *missing)
        return section(
            "How well they detect",
            table(
                ("Run", "Seed", "AUC", "Average precision", "Found", "False alarms", "Wanted"),
                [(e.name, e.run.recipe.seed, *_operating(e.metrics)) for e in self.measured],
                caption=f"In percent, with {rate_percent(LEVEL)} bootstrap intervals. Found and "
                "false alarms are at each run's threshold from held-out healthy images, which was "
                "set for the false-alarm rate in the last column.",
            ),
            *missing,
            self._warning(),
            self._roc(),
            details("At the thresholds of best accuracy", self._best_accuracy()),
        )

    def _best_accuracy(self) -> Html:
        """A table of its own: numbers at one kind of threshold do not compare with the other's."""
        names = ("accuracy", "f1", "sensitivity", "specificity", "precision")
        kept = [
            (e.name, e.record.final.metrics["best_accuracy"]) for e in self.measured if e.record
        ]
        return table(
            ("Run", *(tables.MEASURE_NAMES[name] for name in names)),
            [(name, *(tables.interval(getattr(m, n)) for n in names)) for name, m in kept],
            caption="In percent, each at the threshold that gives the best accuracy on these very "
            "images, as in the paper: optimistic.",
        )

    def _differences(self) -> Html:
        """Keys of the recipes that differ, the seed aside."""
        first = {e.group: e.run.recipe for e in reversed(self.entries)}
        flat = {group: _flat(recipe.model_dump(mode="json")) for group, recipe in first.items()}
        groups = list(dict.fromkeys(e.group for e in self.entries))
        keys = list(dict.fromkeys(key for one in flat.values() for key in one))
        rows = [
            (key, *(flat[group].get(key, "-") for group in groups))
            for key in keys
            if key != "seed" and len({flat[group].get(key) for group in groups}) > 1
        ]
        if not rows:
            return Html()
        caption = "Keys of the recipes that are not the same; - where a recipe has no such key."
        made = table(("Key", *groups), rows, caption=caption, words=True)
        return section("How their recipes differ", made)

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
            f"AUC of {first.name} minus that of the other run, in points, on the same images: the "
            "paired test of DeLong with its 95 % interval, also within strata of what is known of "
            "the images."
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
        return f"{group}: AUC {percent(float(np.mean(values)))} %{many}"

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
        caption = (
            "In percent: mean ± sample standard deviation over the seeds of a recipe, at the "
            "thresholds from held-out healthy images."
        )
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


def _group_names(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """For each run the name of its recipe: the run's own, or for several seeds the title."""
    # Recipes are compared without their seed.
    keys = [_key(run) for run in runs]
    members = {key: [i for i, one in enumerate(keys) if one == key] for key in keys}
    titles = Counter(runs[places[0]].recipe.title for places in members.values())
    made = {}
    for key, places in members.items():
        title = runs[places[0]].recipe.title
        # Different recipes of one title are distinguished by their first run.
        alone = len(places) == 1 or not title or titles[title] > 1
        seeds = f" and {len(places) - 1} more seeds" if len(places) > 1 else ""
        made[key] = names[places[0]] + seeds if alone else title
    return [made[key] for key in keys]


def _key(run: Run) -> str:
    """The recipe without its seed."""
    return run.recipe.model_copy(update={"seed": 0}).to_toml()


def _spread(values: Sequence[float]) -> Html:
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    return join([f"{percent(mean)} ", tag("small", f"± {percent(spread)}")])


def _operating(metrics: Metrics | None) -> tuple[Html | str, ...]:
    """AUC and average precision, and in counts what happens at the threshold."""
    assert metrics is not None
    counts, rate = Counts.of(metrics), metrics.threshold.rate
    return (
        tables.interval(metrics.auc),
        tables.interval(metrics.average_precision),
        _count(counts.found, metrics.anomalous),
        _count(counts.false_alarms, metrics.normal),
        "-" if rate is None else rate_percent(rate),
    )


def _count(part: int, whole: int) -> Html:
    return join([f"{part} of {whole} ", tag("small", f"{percent(part / whole)} %")])


def _flat(record: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested tables of a recipe as dotted keys."""
    made: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            made |= _flat(value, f"{prefix}{key}.")
        else:
            made[f"{prefix}{key}"] = str(value)
    return made
