"""What the command line prints: tables for people, JSON and CSV for programs."""

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.table import Table

from squid.errors import ConfigError
from squid.evaluation.percent import percent, percent_range, rate_percent
from squid.outputs.names import printable, text_cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squid.calibration import Calibration
    from squid.cli.options import Format
    from squid.data.image_set import Splits
    from squid.evaluation.digits import DigitMeasures
    from squid.evaluation.localisation import Localisation
    from squid.evaluation.metrics import Estimate, GroupAuc, Metrics
    from squid.evaluation.record import Evaluation, Evaluations
    from squid.outputs.results import Results
    from squid.recipe import Recipe

# No emoji codes: a file name may hold what looks like one.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=list) + "\n")


def check_target(out: Path, asked: "Format | None") -> "Format":
    """The format in which to write `out`, by its suffix or as asked for; what could not be written
    is refused now, before hours of work."""
    check_file(out)
    by_suffix = {".csv": "csv", ".json": "json"}.get(out.suffix.lower())
    if not (by_suffix or asked):
        raise ConfigError(f"{out} names no format; end it in .csv or .json, or add --format.")
    if asked == "table" or (by_suffix and asked and asked != by_suffix):
        raise ConfigError(f"{out} cannot be written as {asked}; leave --format out or rename it.")
    return asked or by_suffix  # type: ignore[return-value]


def check_file(out: Path) -> None:
    """Refuses a place where no file can be written."""
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name a file in it.")
    if out.exists() and not out.is_file():
        raise ConfigError(f"{out} is a device or a pipe; name a file.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=out.parent):
        pass  # the folder can be written to


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    write_csv(columns, rows, csv_output())


class _Terminal:
    """Where rows of CSV are shown to people: what moves a cursor is written as in tables."""

    def write(self, row: str) -> int:  # the writer of CSV gives a whole row at a time
        return sys.stdout.write(printable(row.removesuffix("\r\n")) + "\n")


def csv_output() -> TextIO:
    """Standard output for CSV. In a file or a pipe it is data, and names are as they are."""
    return cast("TextIO", _Terminal()) if sys.stdout.isatty() else sys.stdout


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], file: TextIO) -> None:
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(
        [text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )


def escaped(text: object) -> str:
    """Text that may hold what rich takes for markup, or what a terminal takes for commands."""
    # A backslash before a bracket would be taken for an escape of it, also where no markup follows.
    # A backspace, which rich drops when it prints, keeps the two apart.
    return printable(text).replace("\\", "\\\b").replace("[", "\\[")


def print_line(console: Console, text: str) -> None:
    """Not broken, so that paths and commands can be copied."""
    console.print(text, highlight=False, soft_wrap=True)


def show_splits(console: Console, recipe: "Recipe", splits: "Splits") -> None:
    """The table of the splits, with what the user should know of them."""
    title = f"{recipe.data.name}, {recipe.method.name} at {recipe.method.size} pixels"
    table = Table("split", "normal", "anomalous", "patients", title=title)
    for row in splits.table():
        patients = "?" if row.patients is None else str(row.patients)
        table.add_row(row.split, str(row.normal), str(row.anomalous), patients)
    console.print(table)
    print_line(console, f"fingerprint {splits.fingerprint}")
    for warning in splits.warnings:
        print_line(console, f"[yellow]note:[/] {escaped(warning)}")


def metric_rows(metrics: "Metrics") -> list[tuple[str, float, float, float]]:
    """Name, value and interval of each measure."""
    from squid.evaluation.metrics import MEASURES

    found: list[tuple[str, Estimate]] = [(name, getattr(metrics, name)) for name in MEASURES]
    return [(name, one.value, one.low, one.high) for name, one in found]


def show_evaluation(
    console: Console, run: Path, record: "Evaluations", evaluation: "Evaluation", metrics: "Metrics"
) -> None:
    """The tables of an evaluation."""
    from squid.evaluation.confounds import what_it_follows
    from squid.evaluation.selection import SELECTION_NAMES

    print_line(console, f"{escaped(run)}: {record.method} on {record.data}")
    table = Table("metric", "%", "95 % interval")
    for name, value, low, high in metric_rows(metrics):
        table.add_row(name, percent(value), percent_range(low, high))
    console.print(table)
    print_line(console, f"scores: {SELECTION_NAMES[evaluation.selection]}")
    print_line(console, _threshold(metrics))
    if evaluation.confounds is not None:
        follows = what_it_follows(evaluation.confounds, evaluation.auc)
        print_line(console, f"[bold]what this score follows:[/] {follows}")
    if evaluation.findings:
        console.print(_findings(evaluation.findings))
    for group, read in evaluation.rsna_class.items():
        print_line(
            console,
            f"RSNA's class, {group}: {read.anomalous} against {read.normal} healthy, AUC "
            f"{percent(read.auc.value)} ({percent_range(read.auc.low, read.auc.high)})",
        )
    if evaluation.localisation:
        console.print(_localisation(evaluation.localisation))
    for measures in evaluation.digits:
        console.print(_digits(measures))
    print_line(console, f"Next: squid report {escaped(run)}")


def show_threshold_note(console: Console, calibration: "Calibration", metrics: "Metrics") -> None:
    """Where the rate of a threshold from held-out images may lie."""
    if metrics.threshold.rate is not None and calibration.heldout:
        point = calibration.operating_point(metrics.threshold.rate, calibration.confidence)
        text = point.note or f"with {point.heldout} held-out images the true rate of the threshold"
        note(console, text if point.note else f"{text} lies {point.range} on images like those.")


def _threshold(metrics: "Metrics") -> str:
    if metrics.threshold.kind == "best_accuracy":
        return "threshold: best accuracy on these very images (as in the paper, optimistic)"
    return (
        f"threshold: {rate_percent(metrics.threshold.rate or 0.0)} false alarms on held-out "
        f"healthy images, {percent(1 - metrics.specificity.value)} % on these"
    )


def _findings(findings: "Mapping[str, GroupAuc]") -> Table:
    table = Table("finding", "images", "AUC", "95 % interval")
    for name, group in findings.items():
        interval = percent_range(group.auc.low, group.auc.high)
        table.add_row(escaped(name), str(group.count), percent(group.auc.value), interval)
    return table


def _localisation(found: "Mapping[str, Localisation]") -> Table:
    images = next(iter(found.values())).images
    title = f"Where heatmaps point: {images} images with boxes, %"
    table = Table("heatmap", "hits", "95 % interval", "pixel AUROC", "AP", "Dice", title=title)
    for name, one in found.items():
        rest = (one.auroc, one.average_precision, one.overlap)
        values = [percent(measure.value) for measure in rest]
        hits = percent_range(one.pointing.low, one.pointing.high)
        table.add_row(name, percent(one.pointing.value), hits, *values)
    return table


def _digits(measures: "DigitMeasures") -> Table:
    table = Table("measure", "%", title=f"DigitAnatomy, noise {measures.noise:g}")
    for name, value in measures.localisation.items():
        table.add_row(f"cells found by {name} (AUC)", percent(value))
    shares = measures.restoration.model_dump() if measures.restoration else {}
    for name, share in shares.items():
        label = name if name == "faithfulness" else f"{name} cells restored"
        table.add_row(label, percent(share))
    return table


def show_results(console: Console, results: "Results", *, steps: bool = False) -> None:
    """A line per image, its name last, so that no name is cut or broken; below it its warnings and
    steps."""
    decimals = min(9, max(4, math.ceil(-math.log10(results.smallest_difference))))
    width = max(decimals + 4, len("score"))
    head = f"{'score':>{width}}  {'healthy images':>20}  {'standardised':>12}  flagged  image"
    print_line(console, f"[bold]{head}[/]")
    for one in results.predictions():
        flagged = {True: "[bold red]yes[/]", False: "no ", None: "?  "}[one.flagged]
        score = "-" if one.score is None else f"{one.score:.{decimals}f}"
        standardised = "-" if one.standardised is None else f"{one.standardised:.3f}"
        print_line(
            console,
            f"{score:>{width}}  {one.rarity or '-':>20}  {standardised:>12}  {flagged}      "
            f"{escaped(one.source)}",
        )
        for text in (*one.warnings, *(one.steps if steps else ())):
            print_line(console, f"{'':>{width}}  {escaped(text)}")


def show_account(console: Console, results: "Results") -> None:
    """How images were flagged, and what became of every input."""
    flagging, calibration = results.flagging, results.about.calibration
    if flagging.threshold is not None:
        print_line(
            console,
            f"threshold {flagging.threshold:.9g}: {flagging.meaning} "
            f"(calibration: {escaped(calibration)})",
        )
    for text in flagging.notes:
        note(console, text)
    show_left_out(console, results.left_out())
    for name, reason in results.not_applicable():
        print_line(console, f"[yellow]no score[/] {escaped(name)}: {escaped(reason)}")
    show_warned(console, results.warned())
    show_skipped(console, results.skipped())
    print_line(console, str(results.counts))


def show_warned(console: Console, warned: Iterable[str]) -> None:
    """How many images have warnings, and which is the first; each has its own in its row."""
    names = iter(warned)
    if first := next(names, ""):
        count = 1 + sum(1 for _ in names)
        what = f"{count:,} images have warnings" if count > 1 else "1 image has a warning"
        print_line(console, f"[yellow]note:[/] {what}, see the rows; the first is {escaped(first)}")


def show_left_out(console: Console, left_out: Iterable[tuple[str, str]]) -> None:
    """A line for each reason: there may be thousands of files."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out:
        names.setdefault(reason, []).append(name)
    for reason, some in names.items():
        rest = f" and {len(some) - 1:,} more" if len(some) > 1 else ""
        print_line(console, f"[yellow]left out[/] {escaped(some[0])}{rest}: {escaped(reason)}")


def show_skipped(console: Console, skipped: Iterable[tuple[str, str]]) -> None:
    for name, reason in skipped:
        # Most reasons begin with the name.
        text = reason if reason.startswith(name) else f"{name}: {reason}"
        print_line(console, f"[yellow]skipped[/] {escaped(text)}")


def note(console: Console, text: str) -> None:
    print_line(console, f"[yellow]note:[/] {escaped(text)}")
