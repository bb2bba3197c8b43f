"""The verbs that look at data: what a recipe takes from them, and what a folder holds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from squid.cli.options import OutputFormat, Settings, Verb, Verbs, set_option
from squid.cli.printing import (
    console,
    errors,
    escaped,
    print_csv,
    print_json,
    print_line,
    show_splits,
    write_csv,
)
from squid.durable import replacing, write_text

if TYPE_CHECKING:
    from squid.data.checking import FolderCheck
    from squid.data.folder import Folder

MOST = 6
"""Lines that are printed of a list; JSON has all."""

app = typer.Typer(cls=Verbs, help="Look at data before training or scoring.", no_args_is_help=True)


@app.command(cls=Verb)
def show(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file.")],
    set_: Settings = None,
    format_: OutputFormat = "table",
) -> None:
    """Read a recipe's data and print its splits and fingerprint.

    Example: `squid data show recipes/demo.toml`
    """
    from squid.cli.progress import FileProgress
    from squid.recipe import read_recipe

    chosen = read_recipe(recipe, set_ or [])
    with FileProgress(errors) as progress:
        splits = chosen.data.load(chosen.method.size, progress)
    if format_ == "json":
        rows = [row._asdict() for row in splits.table()]
        print_json({"splits": rows, "fingerprint": splits.fingerprint, "warnings": splits.warnings})
    elif format_ == "csv":
        print_csv(["split", "normal", "anomalous", "patients"], splits.table())
    else:
        show_splits(console, chosen, splits)


@app.command(cls=Verb)
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of images.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write check.json, files.csv (a line for each file) and contact-sheet.png there.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        set_option("Read it as a recipe would, e.g. data.bits=12 or data.patient='^(\\d+)_'."),
    ] = None,
    format_: Annotated[
        Literal["table", "json"], typer.Option("--format", help="How to print the result.")
    ] = "table",
) -> None:
    """Decode every image of a folder and print what it holds.

    Counts, sizes, values, class folders and how they are understood, the same image twice, patients
    in several folders, files that cannot be read, and images that have no score.

    Example: `squid data check my-images --out my-images-check`
    """
    from squid.cli.progress import FileProgress
    from squid.config import override, parse
    from squid.data.checking import check_folder
    from squid.data.folder import Folder
    from squid.outputs.checks import check_record

    # The same keys as in a recipe, of which the table `data` alone counts here.
    given = override({"data": {"name": "folder", "root": str(path)}}, set_ or [])
    folder = parse(Folder, given["data"], "--set")
    with FileProgress(errors) as progress:
        found = check_folder(folder, progress)
    if out is not None:
        _write(found, out, folder)
    if format_ == "json":
        print_json(check_record(found))
    else:
        _show(found)


def _write(found: "FolderCheck", out: Path, folder: "Folder") -> None:
    """The files of `--out`."""
    from squid.data.contact_sheet import write_contact_sheet
    from squid.outputs.checks import check_record, check_row

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "check.json", json.dumps(check_record(found), indent=2) + "\n")
    rows = [check_row(file) for file in found.files]
    with (
        replacing(out / "files.csv") as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        write_csv(list(rows[0]), [list(row.values()) for row in rows], file)
    write_contact_sheet(found, out / "contact-sheet.png", folder.reading)
    errors.print(f"check.json, files.csv, contact-sheet.png: {escaped(out)}", soft_wrap=True)


def _show(found: "FolderCheck") -> None:
    """A table of the class folders, then what is worth knowing, the worst at the end."""
    megabytes = sum(file.bytes for file in found.files) / 1e6
    print_line(console, f"{escaped(found.root)}: {len(found.images)} images, {megabytes:.1f} MB")
    table = Table("split", "class folder", "taken as", "images", "unreadable", "patients")
    for row in found.groups():
        patients = "?" if row.patients is None else str(row.patients)
        names = escaped(row.split), escaped(row.kind or "-"), escaped(row.taken_as)
        table.add_row(*names, str(row.images), str(row.unreadable), patients)
    console.print(table)
    _show_counts("formats", found.formats())
    for what, counts in found.headers().items():
        _show_counts(what, counts)
    _show_counts("sizes", found.sizes())
    _show_counts("done to read them", found.steps())
    _show_counts("other files, not taken", found.others)
    for reason, count in found.left_out.items():
        print_line(console, f"[yellow]left out:[/] {count} files: {escaped(reason)}")
    for bits, (low, high, images) in found.values().items():
        kind = {None: "DICOM, as shown", 32: "floats"}.get(bits, f"{bits} bit")
        print_line(console, f"values: {kind}, {low:g} to {high:g} ({images} images)")
    _show_list("unreadable", [f"{file.name}: {file.unreadable}" for file in found.unreadable])
    _show_list("no score", [f"{file.name}: {file.not_applicable}" for file in found.not_applicable])
    _show_list(
        "the same image several times",
        [" = ".join(file.name for file in files) for files in found.duplicates()],
    )
    _show_list(
        "patients in several folders",
        [
            f"{one.first} and {one.second}: {one.patients}, for example {' and '.join(one.example)}"
            for one in found.shared_patients()
        ],
    )
    warnings = [*found.warnings, *(text for file in found.read for text in file.warnings)]
    _show_list("notes", warnings)


def _show_counts(title: str, counts: dict[str, int]) -> None:
    shown = [f"{escaped(name)} ({count})" for name, count in list(counts.items())[:MOST]]
    more = [f"{len(counts) - MOST} more"] if len(counts) > MOST else []
    if shown:
        print_line(console, f"{title}: {', '.join(shown + more)}")


def _show_list(title: str, lines: list[str]) -> None:
    if not lines:
        return
    print_line(console, f"[yellow]{title}:[/] {len(lines)}")
    for line in lines[:MOST]:
        print_line(console, f"  {escaped(line)}")
    if len(lines) > MOST:
        print_line(console, f"  and {len(lines) - MOST} more (--format json names all)")
