"""Results of single jobs put together: one line per row and selection, over its seeds."""

import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter

from squid.config import Config, Selection
from squid.data.image_set import Splits
from squid.errors import DataError
from squid.evaluation.confounds import Covariate, covariate, leading, strata
from squid.evaluation.metrics import BEST_ACCURACY, Metrics, evaluate
from squid.evaluation.record import Evaluation, Result, TrivialResult, read_keys, read_record
from squid.evaluation.selection import SELECTION_NAMES
from squid.evaluation.trivial import trivial_scores
from squid.methods import METHODS

SHOWN = ("auc", "accuracy", "f1")
"""The measures of the paper's table, at the threshold of best accuracy."""


@dataclass(frozen=True)
class Spread:
    """A number over seeds: mean and sample standard deviation."""

    mean: float
    std: float | None = None
    """None for a single seed."""

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        found = list(values)
        return cls(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None)

    def __format__(self, spec: str) -> str:
        mean = format(self.mean, spec)
        return mean if self.std is None else f"{mean} ± {format(self.std, spec)}"


@dataclass(frozen=True)
class Line:
    """One line of a table: a row at one selection, over its seeds. Shares are in percent."""

    section: str
    row: str
    selection: Selection
    results: tuple[Result, ...]

    @property
    def title(self) -> str:
        return self.results[0].title

    @property
    def heading(self) -> str:
        """The section's name in tables."""
        return self.results[0].heading or self.section

    @property
    def value(self) -> float | None:
        """Where on the section's curve; None where it is a table."""
        return self.results[0].value

    @property
    def shortened(self) -> bool:
        """Whether it was trained for fewer steps than the method's default schedule has."""
        spent = self.results[0].cost
        return 0 < spent.steps < spent.published_steps

    @property
    def selection_name(self) -> str:
        return SELECTION_NAMES[self.selection]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(result.seed for result in self.results)

    @property
    def evaluations(self) -> list[Evaluation]:
        return [result[self.selection] for result in self.results]

    def measure(self, name: str) -> Spread:
        """A measure at the threshold of best accuracy."""
        return _percent(_value(one.metrics["best_accuracy"], name) for one in self.evaluations)

    @property
    def adjusted(self) -> Spread | None:
        """AUC adjusted for the view where it is known, else for sharpness; None where a result was
        made before that was measured."""
        found = [adjusted_auc(one) for one in self.evaluations]
        # All seeds or none: a mean over some of them would not compare with the other columns.
        known = [value for value in found if value is not None]
        return _percent(known) if len(known) == len(found) else None

    @property
    def noisy(self) -> Spread | None:
        """AUC of the test images with added noise; None where that was not read."""
        found = [one.noisy_auc.value for one in self.evaluations if one.noisy_auc is not None]
        return _percent(found) if len(found) == len(self.results) else None

    @property
    def paper(self) -> Mapping[str, Spread]:
        """The paper's numbers; empty where it has none."""
        return published(self.results[0].recipe.data.name, self.row)

    @property
    def rate(self) -> float:
        """The false-positive rate that the healthy threshold was measured for."""
        return self.evaluations[0].metrics["healthy"].threshold.rate or 0.0

    @property
    def false_alarms(self) -> Spread:
        """At the healthy threshold."""
        metrics = (one.metrics["healthy"] for one in self.evaluations)
        return _percent(1 - one.specificity.value for one in metrics)

    @property
    def found(self) -> Spread:
        """Sensitivity at the healthy threshold."""
        return _percent(one.metrics["healthy"].sensitivity.value for one in self.evaluations)

    @property
    def late_auc_range(self) -> Spread | None:
        """Range of the AUC over the last fifth of the epochs; None without snapshots."""
        curves = [result.curve for result in self.results if result.curve is not None]
        ranges = [curve.late_range[self.selection] for curve in curves]
        known = [value for value in ranges if value is not None]
        return _percent(known) if known else None

    @property
    def restored(self) -> Spread | None:
        """DigitAnatomy: anomalous cells reconstructed as the digit that belongs there."""
        found = [
            one.digits[0].restoration.anomalous
            for one in (result["final"] for result in self.results)
            if one.digits and one.digits[0].restoration is not None
        ]
        known = [share for share in found if share is not None]
        return _percent(known) if known else None

    @property
    def scoring_seconds(self) -> float:
        """For an image, by every snapshot whose score is averaged; the median over seeds, as single
        readings are disturbed by other jobs."""
        return statistics.median(
            result.cost.scoring_seconds * _scorings(result, self.selection)
            for result in self.results
        )

    @property
    def training_seconds(self) -> float:
        """The median over seeds."""
        return statistics.median(result.cost.training_seconds for result in self.results)

    @property
    def run_bytes(self) -> Spread | None:
        """Size of the run folder; None where it does not hold what the selection needs."""
        sizes = [r.cost.run_bytes for r in self.results if r.cost.run_bytes is not None]
        return Spread.of(sizes) if sizes and self.selection == "final" else None

    def over_seeds(self, value: Callable[[Result], float]) -> Spread:
        return Spread.of(value(result) for result in self.results)


def adjusted_auc(evaluation: Evaluation) -> float | None:
    """The mean of the AUCs within strata of the view, or else of sharpness."""
    found = adjusted_for(evaluation)
    return found.adjusted.value if found and found.adjusted else None


def adjusted_for(evaluation: Evaluation) -> Covariate | None:
    """The covariate of `adjusted_auc`."""
    return None if evaluation.confounds is None else leading(evaluation.confounds.covariates)


def _scorings(result: Result, selection: Selection) -> float:
    """How often an image is scored, in scores of the whole run folder. A snapshot is of one member
    alone, a run folder has all of them."""
    members = result.recipe.method.members
    if selection == "final" or result.curve is None:
        return 1
    return (len(result.curve.epochs) if selection == "snapshot_mean" else 1) / members


def summarise_results(results: Sequence[Result], only: Selection | None = None) -> list[Line]:
    """In the order of the results; with `only`, that selection, or the end of training where a row
    does not have it."""
    groups: dict[tuple[str, str, Selection], list[Result]] = {}
    for result in results:
        # Rows without snapshots have one selection, which stands for them in every table.
        offered = result.evaluations.by_selection
        wanted = only if only is not None and only in offered else "final"
        for selection in offered if only is None else [wanted]:
            groups.setdefault((result.section, result.row, selection), []).append(result)
    return [Line(*key, tuple(members)) for key, members in groups.items()]


Given = tuple[float] | tuple[float, float]
"""A mean, or a mean and its standard deviation over seeds, in percent."""


class PublishedRow(Config):
    """What the paper reports of a row."""

    auc: Given
    accuracy: Given
    f1: Given


def published(data: str, row: str) -> dict[str, Spread]:
    """The paper's numbers of a row on a dataset; a row may name the one whose numbers it has."""
    rows = _published().get(data, {})
    known = rows.get(row)
    # A string refers to another row of the paper.
    numbers = rows[known] if isinstance(known, str) else known
    assert not isinstance(numbers, str), f"{row} of {data} refers to a reference"
    return {name: Spread(*values) for name, values in numbers or ()}


@cache
def _published() -> dict[str, dict[str, PublishedRow | str]]:
    """By dataset and row."""
    text = files("squid.benchmark").joinpath("published.toml").read_text(encoding="utf-8")
    by_dataset = TypeAdapter(dict[str, dict[str, PublishedRow | str]])
    return by_dataset.validate_python(tomllib.loads(text))


# Trivial scores


@dataclass(frozen=True)
class TrivialLine:
    """The line of a trivial score; shares are in percent."""

    section: str
    name: str
    measures: Mapping[str, float]
    adjusted: float | None = None
    """AUC adjusted as that of the rows is; None where no stratum has enough images."""


def measure_trivial(section: str, splits: Splits) -> TrivialResult:
    """Every trivial score, at the threshold of best accuracy and adjusted as the rows are."""
    labels, group = splits.test.labels, leading(strata(splits.test))
    measured, adjusted = {}, {}
    for name, scores in trivial_scores(splits).items():
        measured[name] = evaluate(scores, labels, threshold=BEST_ACCURACY)
        within = None if group is None else covariate(scores, labels, group).adjusted
        if within is not None:
            adjusted[name] = within
    return TrivialResult(
        section=section, fingerprint=splits.fingerprint, trivial=measured, adjusted=adjusted
    )


def trivial_lines(result: TrivialResult) -> list[TrivialLine]:
    return [
        TrivialLine(
            result.section,
            name,
            {measure: 100 * _value(metrics, measure) for measure in SHOWN},
            100 * result.adjusted[name].value if name in result.adjusted else None,
        )
        for name, metrics in result.trivial.items()
    ]


# Kept files


def read_results(paths: Iterable[Path]) -> tuple[list[Result], list[TrivialLine]]:
    """Results, in the order of the methods, and trivial scores, from JSON files or folders of them.
    Several folders may hold the same trivial scores."""
    results: list[Result] = []
    trivial: dict[tuple[str, str], TrivialLine] = {}
    for path in _files(paths):
        # A folder holds the trivial scores of each section beside the results of its jobs.
        if "trivial" in read_keys(path):
            lines = trivial_lines(read_record(TrivialResult, path))
            trivial |= {(one.section, one.name): one for one in lines}
        else:
            results += read_record(Result, path).placed()
    # Rows that are no method by name follow after all methods.
    order = {name: place for place, name in enumerate(METHODS)}
    results.sort(key=lambda r: (r.section, order.get(r.row, len(order)), r.row, r.seed))
    if not results:
        raise DataError("No result was given; name result JSON files or folders that hold some.")
    return results, list(trivial.values())


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """A folder may hold other JSON files, which are passed over."""
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*.json") if "section" in read_keys(p))
        else:
            yield path


def _value(metrics: Metrics, name: str) -> float:
    return float(getattr(metrics, name).value)


def _percent(shares: Iterable[float]) -> Spread:
    return Spread.of(100 * share for share in shares)
