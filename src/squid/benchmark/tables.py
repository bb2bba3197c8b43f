"""A benchmark's table as Markdown, CSV, JSON and HTML, with the paper's numbers next to ours."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from squid.benchmark.curves import adjusted_aucs, auc_curves, roc_curves, value_curve
from squid.benchmark.localisation import NOTE, localisation
from squid.benchmark.summary import SHOWN, Line, Spread, TrivialLine, adjusted_for
from squid.evaluation.confounds import LEAST
from squid.evaluation.record import Result
from squid.report.page import Html, figure, join, note, page, section, table, tag
from squid.report.style import Chart

ADJUSTED = "AUC, adjusted"
MEASURE_TITLES = {"auc": "AUC", "accuracy": "Acc", "f1": "F1"}
COST = (
    "Cost: medians over seeds for times, means for the rest; other trainings may have run on the "
    "same device at the same time. The default schedule is the published one; SQUID's is the "
    "authors' 200 epochs, where the paper has 1000. Scoring by snapshots is computed from their "
    "number."
)
SHORTENED = " †"
"""Follows the title of a row that was trained for fewer steps than its default schedule has."""


class BenchmarkTable:
    """Lines and trivial scores, in every form."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        trivial: Sequence[TrivialLine] = (),
        failures: Sequence[tuple[str, str]] = (),
        charts: Sequence[Chart] = (),
    ) -> None:
        """`failures` are names of jobs with what went wrong."""
        self.title = title or "Benchmark"
        self.lines, self.trivial = lines, trivial
        self.failures, self.charts = failures, charts

    def write(self, out: Path) -> list[Path]:
        """`table.md`, `.csv`, `.json` and `.html` in a folder."""
        made = {"md": self.markdown, "csv": self.csv, "json": self.json, "html": self.html}
        out.mkdir(parents=True, exist_ok=True)
        for kind, make in made.items():
            (out / f"table.{kind}").write_text(make(), encoding="utf-8")
        curves = [chart for charts in self._curves for chart in charts.values()]
        for chart in [*curves, *self.charts]:
            chart.save(out / "figures")
        return [out / f"table.{kind}" for kind in made]

    @property
    def _curves(self) -> tuple[dict[str, Chart], ...]:
        return self.value_curves, self.adjusted_aucs, self.roc_curves, self.auc_curves

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(line.section for line in self.lines))

    @cached_property
    def auc_curves(self) -> dict[str, Chart]:
        """By section: how steady its rows were, where snapshots were taken."""
        return self._charts(lambda name: auc_curves(name, self._results(name)))

    @cached_property
    def value_curves(self) -> dict[str, Chart]:
        """By section: the AUC along what it varies."""
        return self._charts(lambda name: value_curve(name, self._of(name)[0]))

    @cached_property
    def adjusted_aucs(self) -> dict[str, Chart]:
        """By section: what is left of each row's AUC within strata."""
        return self._charts(lambda name: adjusted_aucs(name, self._of(name)[0]))

    @cached_property
    def roc_curves(self) -> dict[str, Chart]:
        """By section: the ROC curve of each row of a table."""
        return self._charts(lambda name: roc_curves(name, self._of(name)[0]))

    def _charts(self, make: Callable[[str], Chart | None]) -> dict[str, Chart]:
        """By section, where there is something to draw."""
        charts = {name: make(name) for name in self.sections}
        return {name: chart for name, chart in charts.items() if chart is not None}

    def _results(self, name: str) -> dict[str, tuple[Result, ...]]:
        """The results of each row by its title; the row's selections share them."""
        lines, _ = self._of(name)
        return {line.title: line.results for line in lines}

    def _of(self, name: str) -> tuple[list[Line], list[TrivialLine]]:
        lines = [line for line in self.lines if line.section == name]
        return lines, [one for one in self.trivial if one.section == name]

    # Text

    def markdown(self) -> str:
        parts = [f"# {self.title}"]
        for name in self.sections:
            lines, _ = self._of(name)
            parts += [f"## {lines[0].heading}", self.detection(name), caption(lines)]
            if (pointing := localisation(lines)) is not None:
                parts += [_markdown(pointing), NOTE]
            parts += [_markdown(cost(lines)), COST]
        if self.failures:
            parts += ["## Failed", *(f"- {job}: {_last_line(why)}" for job, why in self.failures)]
        return "\n\n".join(parts) + "\n"

    def detection(self, name: str) -> str:
        """The first table of a section, in Markdown."""
        return _markdown(detection(*self._of(name)))

    def csv(self) -> str:
        file = StringIO()
        records = self.records()
        writer = csv.DictWriter(file, list(records[0]) if records else [])
        writer.writeheader()
        writer.writerows(records)
        return file.getvalue()

    def records(self) -> list[dict[str, Any]]:
        """Plain numbers, one record per line and per trivial score."""
        return [*map(_record, self.lines), *map(_trivial_record, self.trivial)]

    def json(self) -> str:
        values = {
            "title": self.title,
            "rows": self.records(),
            "failures": [{"job": job, "error": why} for job, why in self.failures],
        }
        return json.dumps(values, indent=2) + "\n"

    # HTML

    def html(self) -> str:
        parts: list[Html] = [tag("h1", self.title)]
        for name in self.sections:
            lines, trivial = self._of(name)
            detected, spent = detection(lines, trivial), cost(lines)
            tables = [table(*detected, caption=caption(lines))]
            if (pointing := localisation(lines)) is not None:
                tables.append(table(*pointing, caption=NOTE))
            tables.append(table(*spent, caption=COST))
            # Tables have no curve over values, rows without snapshots none over epochs.
            curves = [charts[name] for charts in self._curves if name in charts]
            parts.append(section(lines[0].heading, *tables, *map(figure, curves)))
        parts += [section("Reconstructions", figure(chart)) for chart in self.charts]
        if self.failures:
            failed = [note(f"{job}: {_last_line(why)}") for job, why in self.failures]
            parts.append(section("Failed", join(failed)))
        return page(f"{self.title} · SQUID", *parts)


Cells = tuple[str, ...]
Table = tuple[Cells, list[Cells]]
"""A header and its rows."""
Column = Callable[[Line], str]


def detection(lines: Sequence[Line], trivial: Sequence[TrivialLine]) -> Table:
    """How well each row detects, next to the paper's numbers. Columns that no line can fill are
    left out."""
    columns: dict[str, Column] = {**_IDENTITY}
    if any(line.adjusted for line in lines):
        columns[ADJUSTED] = lambda line: _or_dash(line.adjusted)
    # Trivial scores fill the measures only, so it counts where those begin.
    if any(line.noisy for line in lines):
        columns["AUC, noise"] = lambda line: _or_dash(line.noisy)
    before = len(columns)
    for name in SHOWN:
        columns[MEASURE_TITLES[name]] = _ours(name)
        columns[f"{MEASURE_TITLES[name]}, paper"] = _paper(name)
    columns["False alarms"] = lambda line: f"{line.false_alarms:.1f}"
    columns["Found"] = lambda line: f"{line.found:.1f}"
    if any(line.late_auc_range for line in lines):
        columns["AUC range, last 20 %"] = lambda line: _or_dash(line.late_auc_range)
    if any(line.restored for line in lines):
        columns["Restored"] = lambda line: _or_dash(line.restored)
    header, rows = _filled(columns, lines)
    for one in trivial:
        # The paper has no number for a trivial score: its column stays empty.
        measures = [text for name in SHOWN for text in (f"{one.measures[name]:.1f}", "")]
        adjusted = "" if one.adjusted is None else f"{one.adjusted:.1f}"
        identity = [adjusted if name == ADJUSTED else "" for name in header[1:before]]
        start = (f"trivial: {one.name}", *identity, *measures)
        rows.append(start + ("",) * (len(header) - len(start)))
    return header, rows


def cost(lines: Sequence[Line]) -> Table:
    """What each row takes."""
    return _filled({**_IDENTITY, **_COSTS}, lines)


def _filled(columns: Mapping[str, Column], lines: Sequence[Line]) -> Table:
    return tuple(columns), [tuple(text(line) for text in columns.values()) for line in lines]


def caption(lines: Sequence[Line]) -> str:
    results = [result for line in lines for result in line.results]
    seeds = sorted({result.seed for result in results})
    devices = sorted({result.provenance.device for result in results})
    commits = sorted({str(result.provenance.commit) for result in results})
    levels = {result.recipe.train.snapshot_noise for result in results} - {0.0}
    noise = (
        " Noise: the same images with Gaussian noise of standard deviation "
        f"{', '.join(map(str, sorted(levels)))}."
        if levels
        else ""
    )
    short = " †: fewer steps than published." if any(line.shortened for line in lines) else ""
    return (
        "Percent, mean ± sample standard deviation over seeds "
        f"({', '.join(map(str, seeds))}). Accuracy and F1 are at the threshold of best accuracy on "
        "the test images themselves (as in the paper, optimistic); false alarms and found at the "
        f"threshold for {100 * lines[0].rate:.0f} % false alarms on held-out healthy images. "
        "Selection says which epochs give the scores and whether labels chose them. Adjusted: the "
        "mean of the AUCs within views where those differ, else within deciles of sharpness, "
        "weighted by anomalous images: what is left when that covariate cannot help"
        f"{_coverage(lines)}. Trivial scores are of the same images.{noise}{short} Device: "
        f"{', '.join(devices)}; commit {', '.join(commits)}."
    )


def _coverage(lines: Sequence[Line]) -> str:
    """How many anomalous images the adjusted AUC is of, where it is not of all."""
    covariates = [adjusted_for(one) for line in lines for one in line.evaluations]
    found = sorted({one.anomalous for one in covariates if one is not None})
    partly = [f"{counted:,} of {every:,}" for counted, every in found if counted < every]
    if not partly:
        return ""
    return (
        f" (of {', '.join(partly)} anomalous images; the others lie in strata with fewer than "
        f"{LEAST} images of a class)"
    )


def _ours(name: str) -> Column:
    return lambda line: f"{line.measure(name):.1f}"


def _paper(name: str) -> Column:
    return lambda line: _or_dash(line.paper.get(name))


def _steps(line: Line) -> str:
    spent = line.results[0].cost
    if not spent.published_steps:
        return "closed form"
    return f"{spent.steps:,} / {spent.published_steps:,}"


def _or_dash(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread:.1f}"


_IDENTITY: dict[str, Column] = {
    "Method": lambda line: line.title + (SHORTENED if line.shortened else ""),
    "Selection": lambda line: line.selection_name,
    "Seeds": lambda line: str(len(line.seeds)),
}
_COSTS: dict[str, Column] = {
    "Image (px)": lambda line: str(line.results[0].recipe.method.size),
    "Steps run / default schedule": _steps,
    "Training (s)": lambda line: f"{line.training_seconds:.0f}",
    "Scoring (ms)": lambda line: f"{1000 * line.scoring_seconds:.2f}",
    "Parameters (M)": lambda line: f"{line.over_seeds(lambda r: r.cost.parameters).mean / 1e6:.1f}",
    "Run folder (MB)": lambda line: (
        "-" if line.run_bytes is None else f"{line.run_bytes.mean / 1e6:.0f}"
    ),
    "Peak memory (GB)": lambda line: (
        f"{line.over_seeds(lambda r: r.cost.peak_bytes).mean / 1e9:.2f}"
    ),
    "Backbone": lambda line: line.results[0].cost.backbone or "-",
}


def _markdown(table: Table) -> str:
    header, rows = table
    everything = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in everything)


def _record(line: Line) -> dict[str, Any]:
    first = line.results[0]
    return {
        "data": line.section,
        "row": line.row,
        "value": line.value,
        "selection": line.selection,
        "seeds": len(line.seeds),
        "auc_adjusted": line.adjusted and line.adjusted.mean,
        "auc_adjusted_std": line.adjusted and line.adjusted.std,
        "auc_noise": line.noisy and line.noisy.mean,
        **{key: value for name in SHOWN for key, value in _both(name, line).items()},
        "false_alarms": line.false_alarms.mean,
        "false_alarms_std": line.false_alarms.std,
        "sensitivity": line.found.mean,
        "sensitivity_std": line.found.std,
        "late_auc_range": line.late_auc_range and line.late_auc_range.mean,
        "restored": line.restored and line.restored.mean,
        "steps_run": first.cost.steps,
        "steps_published": first.cost.published_steps,
        "training_seconds": line.training_seconds,
        "scoring_seconds": line.scoring_seconds,
        "parameters": first.cost.parameters,
        "run_bytes": line.run_bytes and line.run_bytes.mean,
        "peak_bytes": line.over_seeds(lambda r: r.cost.peak_bytes).mean,
        "backbone": first.cost.backbone,
        "device": first.provenance.device,
        "commit": first.provenance.commit,
    }


def _both(name: str, line: Line) -> dict[str, float | None]:
    ours, paper = line.measure(name), line.paper.get(name)
    return {
        name: ours.mean,
        f"{name}_std": ours.std,
        f"{name}_paper": paper.mean if paper else None,
        f"{name}_paper_std": paper.std if paper else None,
    }


def _trivial_record(one: TrivialLine) -> dict[str, Any]:
    own = {"data": one.section, "row": one.name, "selection": "trivial"}
    return {**own, "auc_adjusted": one.adjusted, **one.measures}


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "?"
