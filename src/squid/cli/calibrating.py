"""The verb that measures thresholds at a site: `calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from squid.cli.options import SKIPPED, DeviceOption, RunFolder, Strict, Unverified
from squid.cli.printing import (
    console,
    errors,
    escaped,
    print_line,
    show_left_out,
    show_skipped,
)
from squid.cli.site_tables import show_groups, show_site


def calibrate(
    run: RunFolder,
    healthy: Annotated[
        list[Path],
        typer.Argument(metavar="HEALTHY", help="Healthy images that it was not trained on."),
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What to call it: calibrations/NAME.json.")
    ],
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", help="False-positive rate of its flags.", show_default="the recipe's"
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="SHARE", help="The chance that its threshold keeps the rate.")
    ] = 0.95,
    on_average: Annotated[
        bool,
        typer.Option("--on-average", help="Keep the rate on average instead, over many such sets."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Compare false positives by a column of --table, or without one by manufacturer, "
            "view, sex or age_band of DICOM headers.",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", help="A table with that column, and a column 'image' of paths or UIDs."
        ),
    ] = None,
    few: Annotated[bool, typer.Option("--few", help="Take fewer than 20 images.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare only; write nothing.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a calibration of this name.")
    ] = False,
    strict: Strict = False,
    device: DeviceOption = "auto",
    unverified: Unverified = False,
) -> None:
    """Measure thresholds on healthy images of your hospital, beside the run's own, and compare.

    Use them with `squid score --calibration NAME`.

    Example: `squid calibrate runs/mine healthy-images --name my-hospital`
    """
    from squid.cli.progress import FileProgress
    from squid.run import Run
    from squid.site import calibrate_site

    with FileProgress(errors) as progress:
        site = calibrate_site(
            Run.open(run, verify=not unverified),
            healthy,
            name=name,
            rate=rate,
            confidence=None if on_average else confidence,
            by=by,
            table=table,
            few=few,
            save=not dry_run,
            overwrite=overwrite,
            on_error="raise" if strict else "skip",
            device=device,
            progress=progress,
        )
    show_site(console, run, site)
    if by is not None:
        show_groups(console, by, site)
    if not dry_run:
        print_line(console, f"Next: squid score {escaped(run)} IMAGE... --calibration {name}")
    show_left_out(errors, site.left_out)
    show_skipped(errors, site.skipped)
    if site.skipped:
        raise typer.Exit(SKIPPED)
