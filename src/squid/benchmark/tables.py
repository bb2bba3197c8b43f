"""A benchmark's table as Markdown, CSV, JSON and HTML, with the paper's numbers beside ours."""

import csv
import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from squid.benchmark.summary import SHOWN, Control, Line, Spread
from squid.report.html import Html, figure, join, note, page, section, table, tag
from squid.report.style import Chart

NAMES = {
    "auto_encoder": "Auto-Encoder",
    "vae": "VAE",
    "ganomaly": "Ganomaly",
    "f_anogan": "f-AnoGAN",
    "memae": "MemAE",
    "mnad": "MNAD",
    "salad": "SALAD-style",
    "cutpaste": "CutPaste",
    "panda": "PANDA",
    "mkd": "M-KD",
    "if2d": "IF 2D",
    "padim": "PaDiM",
    "igd": "IGD",
    "patch_memae": "Patch-MemAE",
    "squid": "SQUID",
    "reference": "SQUID, the authors' setting",
    "reference_1000": "the same, 1000 epochs",
    "ours": "SQUID, our setting",
    "ours_1000": "SQUID, our setting, 1000 epochs",
}
"""As the paper writes them; a row of another name keeps it."""
TITLES = {"auc": "AUC", "accuracy": "Acc", "f1": "F1"}


class BenchmarkTable:
    """Lines and controls, in every form."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        controls: Sequence[Control] = (),
        failures: Sequence[tuple[str, str]] = (),
        charts: Sequence[Chart] = (),
    ) -> None:
        """`failures` are names of cells with what went wrong."""
        self.title = title or "Benchmark"
        self.lines, self.controls = lines, controls
        self.failures, self.charts = failures, charts

    def write(self, out: Path) -> list[Path]:
        """`table.md`, `.csv`, `.json` and `.html` in a folder."""
        made = {"md": self.markdown, "csv": self.csv, "json": self.json, "html": self.html}
        out.mkdir(parents=True, exist_ok=True)
        for kind, make in made.items():
            (out / f"table.{kind}").write_text(make(), encoding="utf-8")
        for chart in self.charts:
            chart.save(out / "figures")
        return [out / f"table.{kind}" for kind in made]

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(line.section for line in self.lines))

    def _of(self, name: str) -> tuple[list[Line], list[Control]]:
        lines = [line for line in self.lines if line.section == name]
        return lines, [control for control in self.controls if control.section == name]

    # Text

    def markdown(self) -> str:
        parts = [f"# {self.title}"]
        for name in self.sections:
            lines, controls = self._of(name)
            parts += [f"## {name}", _markdown_table(lines, controls), caption(lines)]
        if self.failures:
            parts += ["## Failed", *(f"- {cell}: {_one_line(why)}" for cell, why in self.failures)]
        return "\n\n".join(parts) + "\n"

    def csv(self) -> str:
        file = StringIO()
        records = self.records()
        writer = csv.DictWriter(file, list(records[0]) if records else [])
        writer.writeheader()
        writer.writerows(records)
        return file.getvalue()

    def records(self) -> list[dict[str, Any]]:
        """Plain numbers, one record per line and per control."""
        return [*map(_record, self.lines), *map(_control_record, self.controls)]

    def json(self) -> str:
        values = {
            "title": self.title,
            "rows": self.records(),
            "failures": [{"cell": cell, "error": why} for cell, why in self.failures],
        }
        return json.dumps(values, indent=2) + "\n"

    # HTML

    def html(self) -> str:
        parts: list[Html] = [tag("h1", self.title)]
        for name in self.sections:
            lines, controls = self._of(name)
            made = table(header(lines), cells(lines, controls), caption=caption(lines))
            parts.append(section(name, made))
        parts += [section("What they draw", figure(chart)) for chart in self.charts]
        if self.failures:
            failed = [note(f"{cell}: {_one_line(why)}") for cell, why in self.failures]
            parts.append(section("Failed", join(failed)))
        return page(f"{self.title} · SQUID", *parts)


def header(lines: Sequence[Line]) -> tuple[str, ...]:
    """Columns that no line can fill are left out."""
    measures = [text for name in SHOWN for text in (TITLES[name], f"{TITLES[name]}, paper")]
    return (
        "Method", "Selection", "Seeds", *measures, "False alarms", "Found", *_optional(lines),
        "Steps run / published", "Training (s)", "Scoring (ms)", "Parameters (M)",
        "Run folder (MB)", "Peak memory (GB)", "Backbone",
    )  # fmt: skip


def cells(lines: Sequence[Line], controls: Sequence[Control]) -> list[tuple[str, ...]]:
    columns = header(lines)
    rows = [_cells(line, _optional(lines)) for line in lines]
    for control in controls:
        measures = [text for name in SHOWN for text in (f"{control.measures[name]:.1f}", "")]
        start = (f"control: {control.name}", "", "", *measures)
        rows.append(start + ("",) * (len(columns) - len(start)))
    return rows


def caption(lines: Sequence[Line]) -> str:
    seeds = sorted({seed for line in lines for seed in line.seeds})
    devices = sorted({result["device"] for line in lines for result in line.results})
    commits = sorted({str(result["commit"]) for line in lines for result in line.results})
    return (
        "Percent, mean ± standard deviation over seeds "
        f"({', '.join(map(str, seeds))}). Accuracy and F1 are at the best threshold of the test "
        "images themselves (the paper's rule, optimistic); false alarms and found at the threshold "
        f"for {lines[0].rate:.0%} false alarms on held-out healthy images. Selection says which "
        "epochs speak and whether labels chose them. Controls are trivial scores of the same "
        f"images. Device: {', '.join(devices)}; commit {', '.join(commits)}."
    )


def _optional(lines: Sequence[Line]) -> tuple[str, ...]:
    wobble = ("AUC range, last 20 %",) if any(line.wobble for line in lines) else ()
    return wobble + (("Restored",) if any(line.restored for line in lines) else ())


def _cells(line: Line, optional: Sequence[str]) -> tuple[str, ...]:
    measures = [
        text
        for name in SHOWN
        for text in (f"{line.ours[name]:.1f}", _or_dash(line.paper.get(name)))
    ]
    extra = {"AUC range, last 20 %": line.wobble, "Restored": line.restored}
    return (
        NAMES.get(line.row, line.row), line.selection, str(len(line.seeds)), *measures,
        f"{line.false_alarms:.1f}", f"{line.found:.1f}", *(_or_dash(extra[o]) for o in optional),
        _steps(line), f"{line.over_seeds('seconds', 'training').mean:.0f}",
        f"{1000 * line.scoring.mean:.2f}", f"{line.over_seeds('parameters').mean / 1e6:.1f}",
        "-" if line.run_bytes is None else f"{line.run_bytes.mean / 1e6:.0f}",
        f"{line.over_seeds('peak_bytes').mean / 1e9:.2f}", line.results[0]["backbone"] or "-",
    )  # fmt: skip


def _steps(line: Line) -> str:
    steps = line.results[0]["steps"]
    return f"{steps['run']:,} / {steps['published']:,}" if steps["published"] else "closed form"


def _or_dash(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread:.1f}"


def _markdown_table(lines: Sequence[Line], controls: Sequence[Control]) -> str:
    columns = header(lines)
    rows = [columns, ("---",) * len(columns), *cells(lines, controls)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _record(line: Line) -> dict[str, Any]:
    first = line.results[0]
    return {
        "data": line.section,
        "row": line.row,
        "protocol": line.protocol,
        "selection": line.selection,
        "seeds": len(line.seeds),
        **{key: value for name in SHOWN for key, value in _both(name, line).items()},
        "false_alarms": line.false_alarms.mean,
        "false_alarms_std": line.false_alarms.std,
        "sensitivity": line.found.mean,
        "sensitivity_std": line.found.std,
        "wobble": line.wobble and line.wobble.mean,
        "restored": line.restored and line.restored.mean,
        "steps_run": first["steps"]["run"],
        "steps_published": first["steps"]["published"],
        "training_seconds": line.over_seeds("seconds", "training").mean,
        "scoring_seconds": line.scoring.mean,
        "parameters": first["parameters"],
        "run_bytes": line.run_bytes and line.run_bytes.mean,
        "peak_bytes": line.over_seeds("peak_bytes").mean,
        "backbone": first["backbone"],
        "device": first["device"],
        "commit": first["commit"],
    }


def _both(name: str, line: Line) -> dict[str, float | None]:
    ours, paper = line.ours[name], line.paper.get(name)
    return {
        name: ours.mean,
        f"{name}_std": ours.std,
        f"{name}_paper": paper.mean if paper else None,
        f"{name}_paper_std": paper.std if paper else None,
    }


def _control_record(control: Control) -> dict[str, Any]:
    start = {"data": control.section, "row": control.name, "protocol": "control"}
    return {**start, **control.measures}


def _one_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "?"
