"""The verbs: parse, call one function, print."""

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import squid
from squid.data.splits import Splits
from squid.detector import Detector, Prediction
from squid.errors import ConfigError, SquidError
from squid.experiments import calibrate_run, convert_run, evaluate_run, train_run, train_seeds
from squid.progress import FileProgress, TrainingProgress
from squid.recipe import Recipe, read_recipe
from squid.report import write_report
from squid.report.overlays import write_overlays
from squid.run import Run
from squid.train import Engine
from squid.train.loop import Interrupted

app = typer.Typer(
    name="squid", no_args_is_help=True, add_completion=False, rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Find anomalies in radiographs after seeing healthy images only. "
    "Research use only; not a medical device.",
)  # fmt: skip
console = Console()
errors = Console(stderr=True)


class DeviceName(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class EngineChoice(StrEnum):
    auto = "auto"
    torch = "torch"
    onnx = "onnx"


class StepName(StrEnum):
    auto = "auto"
    eager = "eager"
    compiled = "compiled"
    graphed = "graphed"


class RuleName(StrEnum):
    normals = "normals"
    paper = "paper"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder left by `squid train`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, e.g. method.slots=100."),
]
DeviceOption = Annotated[DeviceName, typer.Option(help="Where to compute.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(help="A recipe file; none with --resume.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; default runs/RECIPE.")] = None,
    set_: Settings = None,
    device: DeviceOption = DeviceName.auto,
    step: Annotated[StepName, typer.Option(help="How a training step runs; the maths is the same.")] = StepName.auto,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many seeds, one run folder each.")] = 1,
    devices: Annotated[int, typer.Option(min=1, help="GPUs (or CPU processes) on each machine.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted run, to the same weights.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
) -> None:  # fmt: skip
    """Train a recipe into a run folder.

    Ctrl-C saves and says how to go on.
    """
    if (recipe is None) == (resume is None):
        raise ConfigError("Give a recipe to train, or --resume RUN to go on with one.")
    chosen, folder = _what_to_train(recipe, resume, out, [*(set_ or []), *_step_setting(step)])
    engine = Engine(
        device.value, precision=chosen.train.precision, devices=devices, nodes=nodes
    )
    engine.launch()
    splits = chosen.data.load(chosen.method.size)
    if engine.leads:
        show_splits(console, chosen, splits)
    with _interruptible(folder), TrainingProgress(console, shown=engine.leads) as progress:
        if seeds > 1:
            folders = train_seeds(
                chosen, folder, seeds, engine=engine, monitor=progress, splits=splits, overwrite=overwrite
            )  # fmt: skip
        else:
            train_run(
                chosen, folder, engine=engine, monitor=progress, splits=splits, resume=resume is not None,
                overwrite=overwrite,
            )  # fmt: skip
            folders = [folder]
    if engine.leads:
        for made in folders:
            console.print(f"Trained: [bold]{made}[/]   next: squid evaluate {made}")


@app.command()
def evaluate(
    run: RunFolder,
    rule: Annotated[
        RuleName,
        typer.Option(
            help="Threshold from held-out healthy images, or the paper's: best accuracy on the evaluated set."
        ),
    ] = RuleName.normals,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Evaluate on other data, e.g. data.rule=paper; nothing is written."),
    ] = None,
    device: DeviceOption = DeviceName.auto,
    format_: OutputFormat = Format.table,
) -> None:  # fmt: skip
    """Score the test images of a run's recipe and print every metric with its interval."""
    result = evaluate_run(run, rule=rule.value, device=device.value, settings=set_ or [])
    if format_ is Format.json:
        _print_json({key: value for key, value in result.items() if key != "scores"})
    elif format_ is Format.csv:
        _print_csv(["metric", "value", "low", "high"], _metric_rows(result))
    else:
        _show_metrics(run, result)


@app.command()
def score(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="Write a CSV file instead of printing.")] = None,
    rate: Annotated[float | None, typer.Option(help="Target false-positive rate of the verdict.")] = None,
    device: DeviceOption = DeviceName.auto,
    engine: Annotated[EngineChoice, typer.Option(help="What computes; auto takes ONNX Runtime on a CPU where it pays.")] = EngineChoice.auto,
    skip_unreadable: Annotated[bool, typer.Option("--skip-unreadable", help="Name unreadable images and go on.")] = False,
    format_: OutputFormat = Format.table,
) -> None:  # fmt: skip
    """Score images, the most anomalous first."""
    detector = Detector.load(run, device=device.value, engine=engine.value)
    with FileProgress(errors) as progress:
        scored = detector.score_files(
            images, on_error="skip" if skip_unreadable else "raise", progress=progress
        )
    for name, reason in scored.skipped:
        errors.print(f"[yellow]skipped[/] {name}: {reason}", markup=True, highlight=False)
    predictions = detector.judge(scored.sources, scored.scores, rate=rate)
    predictions.sort(key=lambda prediction: -prediction.score)
    _show_predictions(predictions, out, format_)


@app.command()
def explain(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the overlay PNGs.")] = Path("explanations"),
    kind: Annotated[str | None, typer.Option(help="gradcam, residual, memory or method.")] = None,
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Draw where each image is anomalous: overlay PNGs beside the reconstruction."""
    detector = Detector.load(run, device=device.value)
    for path in write_overlays(detector, images, out, kind):
        console.print(path, highlight=False)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One run, or several to compare.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default report.html in the run.")] = None,
    device: DeviceOption = DeviceName.auto,
) -> None:  # fmt: skip
    """Write one self-contained HTML page about a run, or one that compares several."""
    with console.status("Drawing figures"):
        path = write_report(runs, out, device=device.value)
    console.print(f"Report: [bold]{path}[/]")


@app.command()
def data(
    recipe: Annotated[Path, typer.Argument(help="A recipe file.")],
    set_: Settings = None,
    format_: OutputFormat = Format.table,
) -> None:
    """Read a recipe's data and print its splits and fingerprint."""
    chosen = read_recipe(recipe, set_ or [])
    with FileProgress(errors) as progress:
        splits = chosen.data.load(chosen.method.size, progress)
    if format_ is Format.json:
        rows = [row._asdict() for row in splits.table()]
        _print_json({"splits": rows, "fingerprint": splits.fingerprint, "warnings": splits.warnings})
    elif format_ is Format.csv:
        _print_csv(["split", "normal", "anomalous", "patients"], splits.table())
    else:
        show_splits(console, chosen, splits)


@app.command()
def convert(
    generator: Annotated[Path, typer.Argument(metavar="MODEL.pth", help="The authors' generator.")],
    discriminator: Annotated[
        Path, typer.Argument(metavar="DISCRIMINATOR.pth", help="The authors' discriminator.")
    ],
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
) -> None:
    """Make a run folder from checkpoints of the authors' code (loaded weights-only)."""
    convert_run(generator, discriminator, out, overwrite=overwrite)
    console.print(f"Converted: [bold]{out}[/]   next: squid calibrate {out} HEALTHY_IMAGES")


@app.command()
def calibrate(
    run: RunFolder,
    normals: Annotated[
        list[Path], typer.Argument(metavar="HEALTHY...", help="Healthy images it was not trained on.")
    ],
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Measure a detector's mean, spread and thresholds anew, e.g. on healthy images of your hospital."""
    calibration = calibrate_run(run, normals, device=device.value)
    table = Table("false positives", "threshold", title=f"{run}: {calibration.heldout} healthy images")
    for rate, threshold in calibration.thresholds.items():
        enough = "" if calibration.guaranteed(rate) else "  (too few images for this rate)"
        table.add_row(f"{rate:.0%}", f"{threshold:.4f}{enough}")
    console.print(table)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        console.print(squid.__version__, highlight=False)
        raise typer.Exit


def main() -> None:
    """A user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except SquidError as error:
        errors.print(f"[red]squid:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _what_to_train(
    recipe: Path | None, resume: Path | None, out: Path | None, settings: list[str]
) -> tuple[Recipe, Path]:
    if resume is not None:
        if settings or out:
            raise ConfigError("--resume goes on as the run began; leave --set, --step and --out out.")
        return Run.open(resume).recipe, resume
    assert recipe is not None
    return read_recipe(recipe, settings), out or Path("runs") / recipe.stem


def _step_setting(step: StepName) -> list[str]:
    return [] if step is StepName.auto else [f"train.step={step.value}"]


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    try:
        yield
    except Interrupted:
        errors.print(f"Interrupted and saved. Go on with: squid train --resume {folder}")
        sys.exit(130)


def _metric_rows(result: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    names = ("auc", "average_precision", "accuracy", "f1", "sensitivity", "specificity", "precision")
    found = [(name, result["metrics"][name]) for name in names]
    return [(name, value["value"], value["low"], value["high"]) for name, value in found]


def _show_metrics(run: Path, result: dict[str, Any]) -> None:
    metrics = result["metrics"]
    rule = {
        "paper": "threshold: best accuracy on this very set (the paper's rule)",
        "normals": f"threshold: {metrics['threshold']['rate']:.0%} false positives on held-out healthy images",
    }[result["rule"]]  # fmt: skip
    table = Table("metric", "value", "95 % interval", title=f"{run}: {result['method']} on {result['data']}", caption=rule)  # fmt: skip
    for name, value, low, high in _metric_rows(result):
        table.add_row(name, f"{100 * value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}")
    console.print(table)
    if result["findings"]:
        findings = Table("finding", "images", "AUC", "95 % interval")
        for name, group in result["findings"].items():
            auc = group["auc"]
            findings.add_row(name, str(group["count"]), f"{100 * auc['value']:.1f}", f"{100 * auc['low']:.1f} to {100 * auc['high']:.1f}")  # fmt: skip
        console.print(findings)
    for measures in result.get("digits", ()):
        _show_digits(measures)
    console.print(f"Next: squid report {run}")


def _show_digits(measures: dict[str, Any]) -> None:
    table = Table("measure", "%", title=f"DigitAnatomy, noise {measures['noise']:g}")
    for name, value in measures["localisation"].items():
        table.add_row(f"cells found by {name} (AUC)", f"{100 * value:.1f}")
    for name, value in measures["restoration"].items():
        label = name if name == "faithfulness" else f"{name} cells restored"
        table.add_row(label, "-" if value is None else f"{100 * value:.1f}")
    console.print(table)


def _show_predictions(predictions: list[Prediction], out: Path | None, format_: Format) -> None:
    columns = ["image", "score", "probability", "anomalous"]
    rows = [(p.source, p.score, p.probability, p.anomalous) for p in predictions]
    if out is not None:
        with out.open("w", newline="", encoding="utf-8") as file:
            _write_csv(columns, rows, file)
        errors.print(f"{len(rows)} images scored: {out}")
    elif format_ is Format.json:
        _print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif format_ is Format.csv:
        _print_csv(columns, rows)
    else:
        table = Table(*columns)
        for source, score_, probability, anomalous in rows:
            verdict = {True: "[bold red]yes[/]", False: "no", None: "?"}[anomalous]
            table.add_row(_escaped(source), f"{score_:.4f}", f"{probability:.3f}", verdict)
        console.print(table)


def _escaped(text: str) -> str:
    """A file name may hold what rich takes for markup."""
    return text.replace("[", r"\[")


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=list) + "\n")


def _print_csv(columns: list[str], rows: Any) -> None:
    _write_csv(columns, rows, sys.stdout)


def _write_csv(columns: list[str], rows: Any, file: Any) -> None:
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([[_plain(cell) for cell in row] for row in rows])


def _plain(cell: Any) -> Any:
    """Text that a spreadsheet would run as a formula is quoted."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def show_splits(where: Console, recipe: Recipe, splits: Splits) -> None:
    """The table of the splits, with what the user should know of them."""
    table = Table("split", "normal", "anomalous", "patients", title=f"{recipe.data.name}, {recipe.method.size} px")  # fmt: skip
    for row in splits.table():
        patients = "?" if row.patients is None else str(row.patients)
        table.add_row(row.split, str(row.normal), str(row.anomalous), patients)
    where.print(table)
    where.print(f"fingerprint {splits.fingerprint}", highlight=False)
    for warning in splits.warnings:
        where.print(f"[yellow]note:[/] {_escaped(warning)}", highlight=False)
