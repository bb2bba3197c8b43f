"""The verb that looks at the machine."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from squid.cli.printing import console, escaped, print_json, print_line

if TYPE_CHECKING:
    from squid.doctor import Check


def doctor(
    format_: Annotated[
        Literal["table", "json"], typer.Option("--format", help="How to print the result.")
    ] = "table",
) -> None:
    """Check versions, extras, decoders, devices and data, and train a detector of a second.

    What is missing is named with the command that adds it. The exit code is 1 only if something
    that SQUID always needs does not work.

    Example: `squid doctor`
    """
    from squid.doctor import examine, usable

    checks = examine()
    if format_ == "json":
        print_json({"usable": usable(checks), "checks": [check._asdict() for check in checks]})
    else:
        _show(checks)
        works = "SQUID works on this machine." if usable(checks) else "SQUID does not work here."
        print_line(console, works)
    if not usable(checks):
        raise typer.Exit(1)


def _show(checks: "list[Check]") -> None:
    """A table, and below it what helps: one command may help several lines."""
    table = Table("checked", "", "", "found")
    remedies: dict[str, list[str]] = {}
    section = ""
    for check in checks:
        state = "ok" if check.works else "[bold red]broken[/]" if check.required else "missing"
        shown = "" if check.section == section else check.section
        table.add_row(shown, check.name, state, escaped(check.found))
        section = check.section
        if check.remedy:
            remedies.setdefault(check.remedy, []).append(check.name)
    console.print(table)
    for remedy, names in remedies.items():
        print_line(console, f"To add {', '.join(names)}: {escaped(remedy)}")
