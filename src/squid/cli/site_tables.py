"""What `squid calibrate` prints: the site's thresholds beside those the run has, and how they
differ."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from squid.cli.printing import escaped, note, print_line

if TYPE_CHECKING:
    from squid.calibration import Calibration, OperatingPoint
    from squid.site import Comparison, Site


def show_site(console: Console, run: Path, site: "Site") -> None:
    """Thresholds, the false positives that those of the run give here, and drift."""
    name = escaped(site.name)
    print_line(console, f"{escaped(run)}: {name}, {len(site.images)} healthy images")
    console.print(_thresholds(site.calibration))
    print_line(console, f"Threshold of {name}: {_point(site.point)}")
    if site.point.note:
        note(console, site.point.note)
    if site.comparison is None:
        print_line(console, "The run has no held-out scores of its own to compare with.")
    else:
        _show_comparison(console, "the run", "held out of the training", site.comparison)
    for one in site.others:
        if one.name == site.name:
            there = "of the calibration of that name"
            _show_comparison(console, f"{name} until now", there, one)
    if site.others:
        console.print(_side_by_side(site))
    for other, reason in site.unread:
        note(console, f"{other} is not compared: {reason}")


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
    return f"{point.threshold:.9g}: {point.meaning}."


def _show_comparison(console: Console, whose: str, which: str, found: "Comparison") -> None:
    """A threshold that is there already, its false positives, and drift since it was set."""
    from squid.calibration import percent

    drift = found.drift
    print_line(console, f"Threshold of {whose}: {_point(found.point)}")
    print_line(
        console,
        f"It flags {found.flagged} of these {drift.new} healthy images: "
        f"{100 * found.flagged / drift.new:.1f} %, for a target of {percent(found.point.rate)}.",
    )
    answer = "[bold]differ[/]" if drift.found else "are not seen to differ"
    print_line(
        console,
        f"Scores {answer} from the {drift.heldout} {which}: shift "
        f"{drift.shift:+.2f} standard deviations, p = {drift.p_value:.2g} (Mann-Whitney), "
        f"{drift.ks_p_value:.2g} (Kolmogorov-Smirnov).",
    )
    if drift.differing_facts:
        print_line(console, f"Images differ in {', '.join(drift.differing_facts)}.")
    print_line(
        console,
        f"A shift of {drift.smallest_shift:.2f} is found 80 times in 100. One of that size turns "
        f"that threshold's rate into {100 * found.unseen:.1f} %, so use the new threshold whatever "
        "this test says.",
    )


def _side_by_side(site: "Site") -> Table:
    """What each calibration of the run flags of these images, at one rate."""
    from squid.calibration import percent

    count = len(site.images)
    table = Table("calibration", "its images", "threshold", f"flags of these {count}")
    for one in filter(None, (site.comparison, *site.others)):
        share = f"{one.flagged} ({100 * one.flagged / count:.1f} %)"
        until_now = " until now" if one.name == site.name else ""
        cells = (str(one.point.heldout), f"{one.point.threshold:.6g}", share)
        table.add_row(f"{escaped(one.name)}{until_now}", *cells)
    # Its own images would always be flagged at about the rate, which says nothing.
    table.add_row(f"{escaped(site.name)}, new", str(count), f"{site.point.threshold:.6g}", "-")
    table.caption = f"each at {percent(site.point.rate)}; - set by these very images"
    return table


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
