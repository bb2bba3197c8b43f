"""What `squid calibrate` prints: the site's thresholds beside the run's, and how they differ."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from squid.cli.printing import escaped, note, print_line

if TYPE_CHECKING:
    from squid.calibration import Calibration, Drift, OperatingPoint
    from squid.site import Site


def show_site(console: Console, run: Path, site: "Site") -> None:
    """Thresholds, the false positives that the run's own one gives here, and drift."""
    name = escaped(site.name)
    print_line(console, f"{escaped(run)}: {name}, {len(site.images)} healthy images")
    console.print(_thresholds(site.calibration))
    print_line(console, f"Threshold of {name}: {_point(site.point)}")
    if site.point.note:
        note(console, site.point.note)
    from squid.calibration import percent

    found = site.comparison
    if found is None:
        print_line(console, "The run has no held-out scores of its own to compare with.")
        return
    print_line(console, f"Threshold of the run: {_point(found.point)}")
    print_line(
        console,
        f"It flags {found.flagged} of these {len(site.images)} healthy images: "
        f"{100 * found.flagged / len(site.images):.1f} %, for a target of "
        f"{percent(found.point.rate)}.",
    )
    _show_drift(console, found.drift, found.unseen)


def _thresholds(calibration: "Calibration") -> Table:
    """Both kinds of threshold for the usual rates and that of the calibration."""
    from squid.calibration import RATES, percent

    table = Table("false positives", "on average", "true rate", "95 % confidence", "true rate")
    for rate in sorted({*RATES, calibration.rate or RATES[0]}):
        points = (calibration.operating_point(rate, one) for one in (None, 0.95))
        table.add_row(percent(rate), *(cell for point in points for cell in _cells(point)))
    table.caption = "true rate: 90 % of sets of so many images lie between; - needs more images"
    return table


def _cells(point: "OperatingPoint") -> tuple[str, str]:
    if not point.enough:
        return "-", f"needs {point.needed}"
    return f"{point.threshold:.6g}", f"{100 * point.low:.1f} % to {100 * point.high:.1f} %"


def _point(point: "OperatingPoint") -> str:
    return (
        f"{point.threshold:.9g} flags {point.promise}; with {point.heldout} images the true rate "
        f"lies {point.range}."
    )


def _show_drift(console: Console, drift: "Drift", unseen: float) -> None:
    answer = "[bold]differ[/]" if drift.found else "are not seen to differ"
    print_line(
        console,
        f"Scores {answer} from the {drift.heldout} held out of the training: shift "
        f"{drift.shift:+.2f} standard deviations, p = {drift.p_value:.2g} (Mann-Whitney), "
        f"{drift.ks_p_value:.2g} (Kolmogorov-Smirnov).",
    )
    if drift.differing_facts:
        print_line(console, f"Images differ in {', '.join(drift.differing_facts)}.")
    print_line(
        console,
        f"A shift of {drift.smallest_shift:.2f} is found 80 times in 100. One of that size turns "
        f"the run's rate into {100 * unseen:.1f} %, so use the site's threshold whatever this test "
        "says.",
    )


def show_groups(console: Console, column: str, site: "Site") -> None:
    """False positives by group, and what they are compared with."""
    table = Table(escaped(column), "healthy images", "flagged", "95 % interval", "differs")
    for one in site.groups:
        interval = f"{100 * one.low:.1f} % to {100 * one.high:.1f} %"
        differs = f"[bold]yes[/] (p = {one.p_value:.2g})" if one.differs else "no"
        share = f"{one.flagged} ({100 * one.share:.1f} %)"
        table.add_row(escaped(one.name), str(one.count), share, interval, differs)
    console.print(table)
    print_line(
        console,
        "Each image is flagged by a threshold that all other images set, and each group is "
        "compared with the images of the other groups (Fisher's exact test, corrected by Holm). "
        f"A group has enough images for its own threshold from {site.point.needed} on.",
    )
