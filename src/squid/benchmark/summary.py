"""Results of single runs put together: one line per row and protocol, over its seeds."""

import json
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from squid.benchmark.job import Result
from squid.config import Selection
from squid.data.image_set import Splits
from squid.errors import DataError
from squid.evaluation.metrics import BEST_ACCURACY, evaluate
from squid.evaluation.selection import SELECTION
from squid.evaluation.trivial import trivial_scores
from squid.methods import METHODS

SHOWN = ("auc", "accuracy", "f1")
"""The measures of the paper's table, at its threshold rule."""
TRIVIAL = "controls.json"


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    std: float | None = None
    """None of a single one."""

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        found = list(values)
        return cls(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None)

    def __format__(self, spec: str) -> str:
        mean = format(self.mean, spec)
        return mean if self.std is None else f"{mean} ± {format(self.std, spec)}"


@dataclass(frozen=True)
class Line:
    """One row of a table, by one protocol. Shares are in percent."""

    section: str
    row: str
    selection: Selection
    selection: str
    seeds: tuple[int, ...]
    ours: Mapping[str, Spread]
    """AUC, and accuracy and F1 at the best threshold of the test images."""
    paper: Mapping[str, Spread]
    """What the paper reports; empty where it does not."""
    false_alarms: Spread
    """At the threshold from held-out healthy images."""
    found: Spread
    """Sensitivity at that threshold."""
    rate: float
    """The false alarms that threshold was measured for."""
    late_auc_range: Spread | None
    """Of the AUC that the protocol had over the last fifth of the epochs."""
    restored: Spread | None
    """DigitAnatomy: anomalous cells drawn as the digit that belongs there."""
    scoring: Spread
    """Seconds for an image, by all snapshots that speak."""
    run_bytes: Spread | None
    """Of the run folder; None where it does not hold all snapshots that speak."""
    results: tuple[Result, ...]

    def over_seeds(self, *keys: str) -> Spread:
        """A number of the results, such as `seconds`, `training`."""
        return Spread.of(_pick(result, keys) for result in self.results)


@dataclass(frozen=True)
class TrivialRow:
    """A trivial score; shares are in percent."""

    section: str
    name: str
    measures: Mapping[str, float]


def summarise_results(results: Sequence[Result], only: Selection | None = None) -> list[Line]:
    """In the order of the results; `only` one protocol, or the end of training where a row has
    no other."""
    groups: dict[tuple[str, str, Selection], list[Result]] = {}
    for result in results:
        wanted = only if only is not None and only in result["evaluations"] else "last"
        for selection in result["evaluations"] if only is None else [wanted]:
            groups.setdefault((result["section"], result["row"], selection), []).append(result)
    return [_line(*key, members) for key, members in groups.items()]


def _line(section: str, row: str, selection: Selection, results: list[Result]) -> Line:
    evaluated = [result["evaluations"][selection] for result in results]
    healthy = [_measures(one["normals"]) for one in evaluated]
    best = [_measures(one["paper"]) for one in evaluated]
    traces = [
        share for result in results if (share := _late_auc_range(result, selection)) is not None
    ]
    sizes = [result["run_bytes"] for result in results if "run_bytes" in result]
    drawn = [share for result in results if (share := _restored(result)) is not None]
    return Line(
        section=section,
        row=row,
        selection=SELECTION[selection],
        seeds=tuple(result["seed"] for result in results),
        ours={name: _percent(m[name] for m in best) for name in SHOWN},
        paper=published(results[0]["data"], row),
        false_alarms=_percent(1 - m["specificity"] for m in healthy),
        found=_percent(m["sensitivity"] for m in healthy),
        rate=evaluated[0]["normals"]["metrics"]["threshold"]["rate"],
        late_auc_range=_percent(traces) if traces else None,
        restored=_percent(drawn) if drawn else None,
        scoring=Spread.of(r["seconds"]["scoring"] * _scorings(r, selection) for r in results),
        run_bytes=Spread.of(sizes) if sizes and selection == "last" else None,
        results=tuple(results),
    )


def _late_auc_range(result: Result, selection: Selection) -> float | None:
    """None where no snapshot was taken of what speaks."""
    trace = result["snapshots"]
    share: float | None = trace and trace["late_auc_range"][selection]
    return share


def _scorings(result: Result, selection: str) -> int:
    """Snapshots whose scores are averaged."""
    return len(result["snapshots"]["epochs"]) if selection == "snapshots" else 1


def published(data: str, row: str) -> dict[str, Spread]:
    """The paper's numbers of a row on a dataset; a row may name the one whose numbers it has."""
    rows = _published().get(data, {})
    known = rows.get(row, {})
    known = rows[known] if isinstance(known, str) else known
    return {name: Spread(*values) for name, values in known.items()}


@cache
def _published() -> dict[str, Any]:
    text = files("squid.benchmark").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def measure_trivial(section: str, splits: Splits) -> dict[str, Any]:
    """Of the trivial scores, all measures at the paper's rule."""
    labels = splits.test.labels
    measured = {
        name: evaluate(scores, labels, threshold=BEST_ACCURACY).as_dict()
        for name, scores in trivial_scores(splits).items()
    }
    return {"section": section, "fingerprint": splits.fingerprint, "controls": measured}


def read_trivial(measured: Mapping[str, Any]) -> list[TrivialRow]:
    return [
        TrivialRow(
            measured["section"], name, {key: 100 * metrics[key]["value"] for key in SHOWN}
        )
        for name, metrics in measured["controls"].items()
    ]  # fmt: skip


def read_results(paths: Iterable[Path]) -> tuple[list[Result], list[TrivialRow]]:
    """Results, in the paper's order, and controls from JSON files or folders of them, which may
    hold the same controls."""
    results: list[Result] = []
    trivial: dict[tuple[str, str], TrivialRow] = {}
    for path in _files(paths):
        found = _read(path)
        if "controls" in found:
            trivial |= {(one.section, one.name): one for one in read_trivial(found)}
        else:
            results.append(found)
    order = {name: place for place, name in enumerate(METHODS)}
    results.sort(key=lambda r: (r["section"], order.get(r["row"], len(order)), r["row"], r["seed"]))
    if not results:
        raise DataError("No result was given; name result JSON files or folders that hold some.")
    return results, list(trivial.values())


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Of folders, the results only: other JSON files may lie there too."""
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*.json") if _is_result(_parsed(p)))
        else:
            yield path


def _read(path: Path) -> Result:
    found: Result = _parsed(path)
    if not _is_result(found):
        raise DataError(f"{path} is no result of a benchmark.")
    return found


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path} cannot be read as JSON.") from None


def _is_result(found: Any) -> bool:
    return isinstance(found, dict) and found.keys() >= {"section", "fingerprint"}


def _measures(evaluated: Mapping[str, Any]) -> dict[str, float]:
    metrics = evaluated["metrics"]
    return {name: metrics[name]["value"] for name in (*SHOWN, "specificity", "sensitivity")}


def _restored(result: Result) -> float | None:
    clean = result["digits"][0]["restoration"] if result["digits"] else None
    return clean["anomalous"] if clean else None


def _percent(shares: Iterable[float]) -> Spread:
    return Spread.of(100 * share for share in shares)


def _pick(result: Result, keys: Sequence[str]) -> float:
    value: Any = result
    for key in keys:
        value = value[key]
    return float(value)
