"""The verb that scores new images: `score`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from squid.cli.options import (
    INTERRUPTED,
    SKIPPED,
    BackendOption,
    Calibrated,
    DeviceOption,
    Format,
    PrecisionOption,
    Rate,
    RunFolder,
    Strict,
    Threshold,
    Unverified,
)
from squid.cli.printing import (
    check_file,
    check_target,
    console,
    csv_output,
    errors,
    escaped,
    note,
    print_line,
    show_account,
    show_results,
)
from squid.config import Damaged
from squid.durable import replacing
from squid.errors import ConfigError
from squid.version import __version__

if TYPE_CHECKING:
    from squid.data.decode import OnError
    from squid.detector import Detector
    from squid.outputs.journal import Journal
    from squid.outputs.results import Flagging, Results


def score(
    run: RunFolder,
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGE", help="Image files, or folders of them; - reads paths from a pipe."
        ),
    ] = None,
    list_: Annotated[
        Path | None,
        typer.Option("--list", metavar="FILE", help="A file with one path in each line."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a .csv or .json file instead of printing; the same command goes on with "
            "it after a kill.",
        ),
    ] = None,
    calibration: Calibrated = None,
    rate: Rate = None,
    threshold: Threshold = None,
    fdr: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Flag so that at most this share of the flagged images are expected to be "
            "healthy (Benjamini-Hochberg over all images).",
        ),
    ] = None,
    dicom_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write a DICOM report and a secondary capture for each image, to be sent to "
            "an archive; images that are not DICOM files are named (exit code 3).",
        ),
    ] = None,
    gsps: Annotated[
        bool,
        typer.Option("--gsps", help="With --dicom-out: a presentation state for each image, too."),
    ] = False,
    worklist: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write one HTML page to read the images by: sorted by score, with heatmaps.",
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Say what was done to each image before it was scored.")
    ] = False,
    damaged: Annotated[
        Damaged | None,
        typer.Option(
            help="What to do with a file whose checksum is wrong.", show_default="the recipe's"
        ),
    ] = None,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
    backend: BackendOption = "auto",
    precision: PrecisionOption = None,
    compile_: Annotated[
        bool,
        typer.Option("--compile", help="Compile first: a minute that pays for a large archive."),
    ] = False,
    strict: Strict = False,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="How to print the result.", show_default="table"),
    ] = None,
) -> None:
    """Score images, the most anomalous first.

    A file that cannot be read is named and skipped, and the exit code is 3, as it is where nothing
    was scored.

    Example: `squid score runs/demo my-images --out scores.csv`
    """
    from squid.cli.progress import FileProgress
    from squid.data.walk import summary
    from squid.detector import Detector
    from squid.outputs.journal import fingerprint, open_journal
    from squid.outputs.results import Results, describe, score_into
    from squid.run import Run

    if sum(choice is not None for choice in (rate, threshold, fdr)) > 1:
        raise ConfigError("--rate, --threshold and --fdr each set the threshold; give one of them.")
    if gsps and dicom_out is None:
        raise ConfigError("--gsps adds to the results of --dicom-out; give it a folder.")
    on_error: OnError = "raise" if strict else "skip"
    written = None if out is None else check_target(out, format_)
    if worklist is not None:
        _check_page(worklist)
    if dicom_out is not None:
        _check_folder(dicom_out)
    detector = Detector.load(
        Run.open(run, verify=not unverified),
        device=device,
        backend=backend,
        precision=precision,
        compile=compile_,
        calibration=calibration,
        damaged=damaged,
    )
    flagging = _flagging(detector, rate, threshold, fdr)
    opened = detector.open(_paths(images or [], list_), on_error=on_error)
    if not len(opened):
        others = summary(opened.left_out)
        raise ConfigError(f"No image was found{others and f' ({others})'}.")
    if dicom_out is not None:
        _check_dicom(opened.sources)
    # All that scores depend on: with the same, a killed command goes on where it stopped.
    inputs = {
        "model": detector.digest,
        "computed": [str(detector.device), detector.backend, precision, compile_, __version__],
        "read": detector.reading.model_dump(mode="json"),
        "files": fingerprint(opened.sources),
    }
    # Where images are scored by each other, the rest alone would have other scores.
    known = opened.sources if detector.method.scored_together is None else ()
    with _resumable(out), open_journal(out, inputs, known) as journal:
        _say_what_was_there(journal)
        with FileProgress(errors) as progress:
            score_into(
                journal,
                detector,
                opened,
                on_error=on_error,
                progress=progress,
            )
        about = describe(run, detector, calibration)
        results = Results(detector, journal, flagging(journal), about, opened)
        _write(results, out, written or format_ or "table", steps=steps)
        refused = 0 if dicom_out is None else _write_dicom(results, detector, dicom_out, gsps)
        if worklist is not None:
            _write_worklist(detector, results, worklist)
        show_account(errors, results)
    if not results.counts.scored:
        print_line(errors, "[red]No image was scored[/]; the lines above say why.")
    if results.counts.skipped or refused or not results.counts.scored:
        raise typer.Exit(SKIPPED)


def _check_page(page: Path) -> None:
    """An error where it is no HTML page or cannot be written."""
    if page.suffix.lower() not in (".html", ".htm") and not page.is_dir():
        raise ConfigError(
            f"--worklist writes an HTML page; name it {page.stem or 'worklist'}.html."
        )
    check_file(page)


def _check_folder(folder: Path) -> None:
    """An error where there is no such folder and none can be made; it is not made yet."""
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.is_dir():
        raise ConfigError(f"{there} is not a folder; name a folder for --dicom-out.")
    with TemporaryFile(dir=there):
        pass  # the folder can be written to


def _check_dicom(sources: tuple[str, ...]) -> None:
    from squid.dicom.files import check_sources

    check_sources(sources)


def _paths(images: list[Path], listed: Path | None) -> list[Path]:
    """What was named on the command line, in a list, and in a pipe."""
    from squid.data.inputs import read_file_list

    named: list[Path] = []
    for source in [*images, *([] if listed is None else [listed])]:
        in_list = source is listed or str(source) == "-"
        named += read_file_list(source) if in_list else [source]
    if not named:
        raise ConfigError("Nothing to score: name images, folders of them, or a --list.")
    return named


def _flagging(
    detector: "Detector", rate: float | None, threshold: float | None, fdr: float | None
) -> "Callable[[Journal], Flagging]":
    """How the scored images will be flagged; a choice that cannot work is refused at once."""
    from squid.outputs.results import flag_by_false_discovery, flag_by_rate, flag_by_threshold

    if fdr is not None:
        detector.calibration.false_discovery_threshold([], fdr)
        return lambda journal: flag_by_false_discovery(detector.calibration, journal, fdr)
    known = flag_by_rate(detector, rate) if threshold is None else flag_by_threshold(threshold)
    return lambda _: known


def _write(results: "Results", out: Path | None, form: Format, *, steps: bool) -> None:
    """To a file, or to standard output."""
    from squid.outputs.files import write_results

    if form == "table":
        if results.counts.scored:
            show_results(console, results, steps=steps)
    elif out is None:
        file = csv_output() if form == "csv" else sys.stdout
        write_results(results, file, form, steps=steps)
    else:
        with replacing(out) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            write_results(results, file, form, steps=steps)
        print_line(errors, f"Written: [bold]{escaped(out)}[/]")


def _write_dicom(results: "Results", detector: "Detector", folder: Path, gsps: bool) -> int:
    """DICOM objects of each scored image; how many images could have none."""
    from squid.cli.progress import FileProgress
    from squid.dicom.files import write_files

    with FileProgress(errors, "writing") as progress:
        written = write_files(detector, results, folder, gsps=gsps, progress=progress)
    if written.heatmap_note:
        note(errors, f"the method's first heatmap is not shown: {written.heatmap_note}")
    for source, reason in written.refused:
        note(errors, f"no DICOM results for {source}: {reason}")
    print_line(errors, f"Written: {written.files:,} DICOM files in [bold]{escaped(folder)}[/]")
    return len(written.refused)


def _write_worklist(detector: "Detector", results: "Results", page: Path) -> None:
    from squid.report.worklist import write_worklist

    with errors.status("Making the worklist"):
        write_worklist(detector, results, page)
    print_line(errors, f"Worklist: [bold]{escaped(page)}[/] (open it in a browser)")


def _say_what_was_there(journal: "Journal") -> None:
    if journal.resumed:
        note(errors, f"{journal.resumed:,} images were scored before; going on after them.")
    elif journal.replaced:
        note(errors, "An unfinished scoring of other images, or with another run, is begun anew.")


@contextmanager
def _resumable(out: Path | None) -> Iterator[None]:
    """An interrupted scoring into a file says that what was scored is kept."""
    try:
        yield
    except KeyboardInterrupt:
        if out is None:
            raise
        print_line(errors, "Interrupted. What was scored is kept: the same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
