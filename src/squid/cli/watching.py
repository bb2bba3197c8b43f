"""The verb that scores what comes into a folder."""

import signal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from squid.cli.options import (
    SKIPPED,
    Calibrated,
    DeviceOption,
    Rate,
    RunFolder,
    Threshold,
    Unverified,
)
from squid.cli.printing import console, errors, escaped, note, print_line
from squid.errors import ConfigError

if TYPE_CHECKING:
    from squid.node.watch import Outcome


def _seconds(text: str) -> float:
    """`5` or `5s`."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 3600:
        raise ConfigError(f"--settle {text} is no time; give seconds, such as 5s.")
    return seconds


def watch(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="IN", help="The folder that files come into.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A JSON result for each file.")],
    still: Annotated[
        str,
        typer.Option(
            "--settle", metavar="SECONDS", help="How long a file must be unchanged to be taken."
        ),
    ] = "5s",
    once: Annotated[
        bool,
        typer.Option("--once", help="Score what is there, then end (exit code 3: some failed)."),
    ] = False,
    dicom: Annotated[
        bool,
        typer.Option("--dicom", help="Also write DICOM results of DICOM files, to OUT/dicom."),
    ] = False,
    gsps: Annotated[
        bool,
        typer.Option("--gsps", help="With --dicom: a presentation state for each image, too."),
    ] = False,
    calibration: Calibrated = None,
    rate: Rate = None,
    threshold: Threshold = None,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
) -> None:
    """Score each file that comes into a folder, once, and move it to `done` or `failed`.

    Beside a failed file is a text with the reason. Reports and raw images of a study, and files
    that are no images, are left out, which their JSON says. After a kill the same command goes on;
    a file that ended the program twice is moved to `failed`. SIGTERM and Ctrl-C end it once the
    images at hand are scored. There is no --fdr: a false-discovery rate is that of one worklist.

    Example: `squid watch runs/demo incoming --out results`
    """
    from squid.detector import Detector
    from squid.node.watch import Watch
    from squid.outputs.results import describe, flag_by_rate, flag_by_threshold
    from squid.run import Run

    if rate is not None and threshold is not None:
        raise ConfigError("--rate and --threshold each set the threshold; give one of them.")
    if gsps and not dicom:
        raise ConfigError("--gsps adds to the results of --dicom; give both.")
    seconds = _seconds(still)
    opened = Run.open(run, verify=not unverified)
    detector = Detector.load(opened, device=device, calibration=calibration)
    failed = 0

    def report(outcome: "Outcome") -> None:
        nonlocal failed
        failed += outcome.failed
        print_line(console, _line(outcome))

    flagging = flag_by_rate(detector, rate) if threshold is None else flag_by_threshold(threshold)
    watched = Watch(
        detector,
        flagging,
        describe(run, detector, calibration),
        folder,
        out,
        still=seconds,
        dicom=dicom,
        gsps=gsps,
        report=report,
    )
    for text in flagging.notes:
        note(errors, text)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if not once:
        print_line(errors, f"Watching {escaped(folder)}; Ctrl-C ends it.")
    left = watched.run(stop, once=once)
    if once and left:
        files = "1 file was" if left == 1 else f"{left} files were"
        note(errors, f"{files} still changing; left for the next start.")
    if once and failed:
        raise typer.Exit(SKIPPED)


def _line(outcome: "Outcome") -> str:
    """What became of a file: its name last, so that no name is cut."""
    name, found = escaped(outcome.name), outcome.prediction
    if outcome.failed:
        return f"[yellow]failed[/]  {name}: {escaped(outcome.reason)}"
    if found is None:
        return f"left out  {name}: {escaped(outcome.reason)}"
    if found.score is None:
        return f"no score  {name}: {escaped(found.not_applicable)}"
    rarity = found.rarity and f"{found.rarity}, "
    flagged = {True: "[bold red]flagged[/]", False: "not flagged", None: "no threshold"}
    return f"{flagged[found.flagged]}, {rarity}score {found.score:.5g}  {name}"
