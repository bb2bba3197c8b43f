"""The verbs: parse, call one function, print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from squid.benchmark.verbs import ablate, benchmark
from squid.detector import Detector
from squid.errors import ConfigError, SquidError
from squid.experiments import (
    calibrate_run,
    convert_run,
    evaluate_run,
    open_unfinished,
    train_run,
    train_seeds,
)
from squid.printing import (
    PREDICTION,
    escaped,
    metric_rows,
    prediction_rows,
    print_csv,
    print_json,
    print_line,
    show_calibration,
    show_metrics,
    show_predictions,
    show_splits,
    write_csv,
)
from squid.progress import FileProgress, TrainingProgress
from squid.protocols import Protocol
from squid.recipe import Recipe, read_recipe
from squid.report import write_report
from squid.report.overlays import write_overlays
from squid.run import Run
from squid.train import Engine, Interrupted
from squid.version import __version__

app = typer.Typer(
    name="squid",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Find anomalies in radiographs after seeing healthy images only. "
    "Research use only; not a medical device.",
)
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
    captured = "captured"
    compiled = "compiled"
    graphed = "graphed"


class RuleName(StrEnum):
    normals = "normals"
    paper = "paper"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder left by `squid train`.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a recipe key, e.g. method.slots=100."
    ),
]
DeviceOption = Annotated[DeviceName, typer.Option(help="Where to compute.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]


@app.command()
def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe file; none with --resume.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; default runs/RECIPE.")] = None,
    set_: Settings = None,
    device: DeviceOption = DeviceName.auto,
    step: Annotated[
        StepName, typer.Option(help="How a training step runs; the maths is the same.")
    ] = StepName.auto,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train so many seeds, one run folder each.")
    ] = 1,
    devices: Annotated[
        int, typer.Option(min=1, help="GPUs (or CPU processes) on each machine.")
    ] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with an interrupted run, to the same weights."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.")
    ] = False,
) -> None:
    """Train a recipe into a run folder.

    Ctrl-C saves and says how to go on.
    """
    if (recipe is None) == (resume is None):
        raise ConfigError("Give a recipe to train, or --resume RUN to go on with one.")
    settings = [*(set_ or []), *_step_setting(step)]
    chosen, folder = _what_to_train(recipe, resume, out, settings)
    if resume is None and seeds == 1:
        Run(folder).refuse_begun(overwrite=overwrite)  # before the data is read
    engine = Engine(device.value, precision=chosen.train.precision, devices=devices, nodes=nodes)
    engine.launch()
    splits = chosen.data.load(chosen.method.size)
    if engine.leads:
        show_splits(console, chosen, splits)
    again = f"squid train --resume {folder}" if seeds == 1 else "the same command"
    with _interruptible(again), TrainingProgress(console, shown=engine.leads) as progress:
        if seeds > 1:
            folders = train_seeds(
                chosen,
                folder,
                seeds,
                engine=engine,
                monitor=progress,
                splits=splits,
                overwrite=overwrite,
            )
        else:
            train_run(
                chosen,
                folder,
                engine=engine,
                monitor=progress,
                splits=splits,
                resume=resume is not None,
                overwrite=overwrite,
            )
            folders = [folder]
    if engine.leads:
        for made in folders:
            print_line(
                console, f"Trained: [bold]{escaped(made)}[/]   next: squid evaluate {escaped(made)}"
            )


@app.command()
def evaluate(
    run: RunFolder,
    rule: Annotated[
        RuleName | None,
        typer.Option(
            help="Threshold from held-out healthy images, or the paper's: "
            "best accuracy on the evaluated set.",
            show_default="normals; paper with --protocol paper",
        ),
    ] = None,
    protocol: Annotated[
        Protocol,
        typer.Option(
            metavar="last|paper|snapshots",
            help="Which snapshots speak: the last, the one that labelled validation images choose "
            "(the paper's), or the mean of all.",
        ),
    ] = "last",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Evaluate on other data, e.g. data.rule=paper; nothing is written.",
        ),
    ] = None,
    device: DeviceOption = DeviceName.auto,
    format_: OutputFormat = Format.table,
) -> None:
    """Score the test images of a run's recipe and print every metric with its interval."""
    usual = RuleName.paper if protocol == "paper" else RuleName.normals
    result = evaluate_run(
        run,
        rule=(rule or usual).value,
        protocol=protocol,
        device=device.value,
        settings=set_ or [],
    )
    if format_ is Format.json:
        print_json({key: value for key, value in result.items() if key != "scores"})
    elif format_ is Format.csv:
        print_csv(["metric", "value", "low", "high"], metric_rows(result))
    else:
        show_metrics(console, run, result)


@app.command()
def score(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="Write a CSV file instead of printing.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Target false-positive rate of the verdict.")
    ] = None,
    device: DeviceOption = DeviceName.auto,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="What computes; auto takes ONNX Runtime on a CPU where it pays."),
    ] = EngineChoice.auto,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Name unreadable images and go on.")
    ] = False,
    format_: OutputFormat = Format.table,
) -> None:
    """Score images, the most anomalous first."""
    detector = Detector.load(run, device=device.value, engine=engine.value)
    with FileProgress(errors) as progress:
        scored = detector.score_files(
            images, on_error="skip" if skip_unreadable else "raise", progress=progress
        )
    for name, reason in scored.skipped:
        text = f"[yellow]skipped[/] {escaped(name)}: {escaped(reason)}"
        errors.print(text, highlight=False, soft_wrap=True)
    predictions = detector.judge(scored.sources, scored.scores, rate=rate)
    predictions.sort(key=lambda prediction: -prediction.score)
    rows = prediction_rows(predictions)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", newline="", encoding="utf-8") as file:
            write_csv(PREDICTION, rows, file)
        errors.print(f"{len(rows)} images scored: {escaped(out)}", soft_wrap=True)
    elif format_ is Format.json:
        print_json([dict(zip(PREDICTION, row, strict=True)) for row in rows])
    elif format_ is Format.csv:
        print_csv(PREDICTION, rows)
    else:
        show_predictions(console, predictions)


@app.command()
def explain(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the overlay PNGs.")] = Path("explanations"),
    kind: Annotated[str | None, typer.Option(help="method, gradcam, residual or memory.")] = None,
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Draw where each image is anomalous: overlay PNGs beside the reconstruction."""
    detector = Detector.load(run, device=device.value)
    for path in write_overlays(detector, images, out, kind):
        print_line(console, escaped(path))


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="One run, or several to compare.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; default report.html in the run.")
    ] = None,
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Write one self-contained HTML page about a run, or one that compares several."""
    with console.status("Drawing figures"):
        path = write_report(runs, out, device=device.value)
    print_line(console, f"Report: [bold]{escaped(path)}[/] (open it in a browser)")
    run = escaped(runs[0])
    print_line(console, f"Next: squid score {run} IMAGE...   or   squid explain {run} IMAGE...")


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
        print_json({"splits": rows, "fingerprint": splits.fingerprint, "warnings": splits.warnings})
    elif format_ is Format.csv:
        print_csv(["split", "normal", "anomalous", "patients"], splits.table())
    else:
        show_splits(console, chosen, splits)


@app.command()
def convert(
    generator: Annotated[Path, typer.Argument(metavar="MODEL.pth", help="The authors' generator.")],
    discriminator: Annotated[
        Path, typer.Argument(metavar="DISCRIMINATOR.pth", help="The authors' discriminator.")
    ],
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.")
    ] = False,
) -> None:
    """Make a run folder from checkpoints of the authors' code (loaded weights-only)."""
    convert_run(generator, discriminator, out, overwrite=overwrite)
    shown = escaped(out)
    print_line(
        console, f"Converted: [bold]{shown}[/]   next: squid calibrate {shown} HEALTHY_IMAGES"
    )


@app.command()
def calibrate(
    run: RunFolder,
    normals: Annotated[
        list[Path],
        typer.Argument(metavar="HEALTHY...", help="Healthy images it was not trained on."),
    ],
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Measure a detector's thresholds anew, e.g. on healthy images of your hospital."""
    calibration = calibrate_run(run, normals, device=device.value)
    show_calibration(console, run, calibration)


app.command()(benchmark)
app.command()(ablate)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit


def main() -> None:
    """A user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except SquidError as error:
        errors.print(f"[red]squid:[/] {escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _what_to_train(
    recipe: Path | None, resume: Path | None, out: Path | None, settings: list[str]
) -> tuple[Recipe, Path]:
    if resume is not None:
        if settings or out:
            raise ConfigError(
                "--resume goes on as the run began; leave --set, --step and --out out."
            )
        return open_unfinished(resume).recipe, resume
    assert recipe is not None
    return read_recipe(recipe, settings), out or Path("runs") / recipe.stem


def _step_setting(step: StepName) -> list[str]:
    return [] if step is StepName.auto else [f"train.step={step.value}"]


@contextmanager
def _interruptible(again: str) -> Iterator[None]:
    try:
        yield
    except Interrupted:
        errors.print(f"Interrupted and saved. Go on with: {escaped(again)}", soft_wrap=True)
        sys.exit(130)
