"""The verbs that use a run folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from squid.cli.options import (
    SKIPPED,
    Calibrated,
    DeviceOption,
    HeatmapKind,
    HeatmapValues,
    ImagePaths,
    OutputFormat,
    RunFolder,
    Unverified,
    set_option,
)
from squid.cli.printing import (
    console,
    errors,
    escaped,
    metric_rows,
    note,
    print_csv,
    print_json,
    print_line,
    show_evaluation,
    show_left_out,
    show_skipped,
    show_threshold_note,
)
from squid.config import Selection, ThresholdKind
from squid.errors import ConfigError, DataError, RunError


def evaluate(
    run: RunFolder,
    selection: Annotated[
        Selection,
        typer.Option(
            help="Which weights give the scores: those at the end of training, the epoch that "
            "labelled validation images choose (as in the paper), or the mean over all snapshots.",
        ),
    ] = "final",
    threshold: Annotated[
        ThresholdKind | None,
        typer.Option(
            help="Set on held-out healthy images, or for the best accuracy on the evaluated "
            "images (as in the paper).",
            show_default="healthy; best_accuracy with --selection best_epoch",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        set_option("Evaluate on other data, e.g. data.root=/data/other; nothing is written."),
    ] = None,
    prevalence: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of anomalous images where it will be used, for the share of flagged images "
            "that are anomalous there.",
        ),
    ] = None,
    calibration: Calibrated = None,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
    format_: OutputFormat = "table",
) -> None:
    """Score the test images of a run's recipe and print every metric with its interval.

    The run's metrics.json keeps every selection and both of its thresholds; the options only choose
    what is printed.

    Example: `squid evaluate runs/demo`
    """
    from squid.evaluation.evaluate import at_threshold_of, evaluate_run
    from squid.evaluation.prevalence import check_prevalence, predictive_value
    from squid.run import Run

    if prevalence is not None:
        check_prevalence(prevalence)
    if calibration is not None and (selection != "final" or threshold == "best_accuracy"):
        raise ConfigError(
            f"--calibration {calibration} sets a threshold for the scores at the end of training; "
            "leave --selection and --threshold out."
        )
    usual: ThresholdKind = "best_accuracy" if selection == "best_epoch" else "healthy"
    opened = Run.open(run, verify=not unverified)
    known = opened.calibration if calibration is None else opened.site_calibration(calibration)
    record = evaluate_run(opened, device=device, settings=set_ or [])
    if selection not in record.by_selection:
        lacks = "snapshots of these images: train with train.snapshot_every"
        if "snapshot_mean" in record.by_selection:
            lacks = "anomalous validation images to choose an epoch by: give it some"
        raise RunError(f"{run} has no {lacks}, or leave --selection out.")
    evaluation = record.by_selection[selection]
    metrics = evaluation.metrics[threshold or usual]
    if calibration is not None:
        metrics = at_threshold_of(known, record, opened.recipe.false_positive_rate)
    chances = None if prevalence is None else predictive_value(metrics, prevalence)
    if format_ == "json":
        kept = evaluation.model_dump(mode="json", exclude={"scores", "metrics"})
        about = record.model_dump(mode="json", exclude={"images", "by_selection"})
        further = {} if chances is None else {"predictive_value": asdict(chances)}
        print_json({**about, **kept, "metrics": metrics.model_dump(mode="json"), **further})
    elif format_ == "csv":
        rows: list[tuple[Any, ...]] = [*metric_rows(metrics)]
        if chances is not None:
            rows.append(("predictive_value", chances.value, chances.low, chances.high))
        print_csv(["metric", "value", "low", "high"], rows)
    else:
        show_evaluation(console, run, record, evaluation, metrics)
    if chances is not None and format_ == "table":
        print_line(console, chances.sentence)
    show_threshold_note(errors, known, metrics)


def explain(
    run: RunFolder,
    images: ImagePaths,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the pictures.")] = Path(
        "explanations"
    ),
    kind: Annotated[
        HeatmapKind | None,
        typer.Option(
            help="Which heatmap.", show_default="the method's first that is not at chance"
        ),
    ] = None,
    values: Annotated[
        HeatmapValues | None,
        typer.Option(help="Also write the values of each heatmap, at the method's resolution."),
    ] = None,
    calibration: Calibrated = None,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
) -> None:
    """Show where each image is anomalous: a PNG of input, reconstruction and heatmap.

    Pictures have the image's own resolution, its score, and whether it is flagged. A file that
    cannot be read is named and skipped, and the exit code is 3.

    Example: `squid explain runs/demo my-images --out explanations`
    """
    from squid.cli.progress import FileProgress
    from squid.detector import Detector
    from squid.report.overlays import write_overlays
    from squid.run import Run

    # The torch network: heatmaps need its layers.
    opened = Run.open(run, verify=not unverified)
    detector = Detector.load(opened, device=device, backend="torch", calibration=calibration)
    with FileProgress(errors, "explaining") as progress:
        written = write_overlays(detector, images, out, kind, values=values, progress=progress)
    for path in written.pictures:
        print_line(console, escaped(path))
    if written.warning:
        print_line(errors, f"[bold red]warning:[/] {escaped(written.warning)}")
    if written.note:
        note(errors, written.note)
    show_left_out(errors, written.left_out)
    show_skipped(errors, written.skipped)
    if written.skipped:
        raise typer.Exit(SKIPPED)
    if not written.pictures:
        raise DataError("No image was found.")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="One run, several to compare, or results of a benchmark (folders or files).",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The HTML file.",
            show_default="report.html in the run, or in the folder of results; of several runs, "
            "comparison.html in the folder above",
        ),
    ] = None,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
) -> None:
    """Write one self-contained HTML page about a run, one that compares several, or one with the
    tables and figures of a benchmark.

    Example: `squid report runs/demo`
    """
    from squid.report import write_report
    from squid.run import Run

    if any(_holds_results(path) for path in runs):
        _report_benchmark(runs, out)
        return
    with errors.status("Making figures"):
        opened = [Run.open(run, verify=not unverified) for run in runs]
        written = write_report(opened, out, device=device)
    for caution in written.cautions:
        print_line(errors, f"[bold red]warning:[/] {escaped(caution)}")
    print_line(console, f"Report: [bold]{escaped(written.path)}[/] (open it in a browser)")
    if len(runs) == 1:
        run = escaped(runs[0])
        print_line(console, f"Next: squid score {run} IMAGE...   or   squid explain {run} IMAGE...")


def _report_benchmark(paths: list[Path], out: Path | None) -> None:
    from squid.benchmark import table_of_results
    from squid.durable import write_text

    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    out = out or folder / "report.html"
    with errors.status("Making figures"):
        page = table_of_results(paths).html()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page)
    print_line(console, f"Report: [bold]{escaped(out)}[/] (open it in a browser)")


def _holds_results(path: Path) -> bool:
    """Whether a path is a result of a benchmark, or a folder of some, and no run folder."""
    from squid.evaluation.record import read_keys

    if (path / "recipe.toml").exists():
        return False
    given = path.glob("*.json") if path.is_dir() else [path] * (path.suffix == ".json")
    return any("section" in read_keys(one) for one in given if one.is_file())
