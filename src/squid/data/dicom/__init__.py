"""One DICOM file -> one gray image, with a record of what was done to it.

`elements` finds the elements within limits, `header` says which images are read, `pixels` decodes,
and `render` turns stored values into gray. Whatever is wrong raises one sentence.
"""

from pathlib import Path

from squid.data.dicom.elements import is_dicom, read_file
from squid.data.dicom.header import (
    MANUFACTURER,
    DicomFacts,
    aspect_note,
    check_kind,
    facts_of,
    gate,
    layout_of,
)
from squid.data.dicom.pixels import read_pixels, syntax_of
from squid.data.dicom.render import render
from squid.data.gray import Gray
from squid.data.reading import DicomReading
from squid.errors import DataError

__all__ = ["MANUFACTURER", "DicomFacts", "check_header", "is_dicom", "read_dicom", "read_facts"]


def read_dicom(data: bytes, reading: DicomReading) -> Gray:
    """The image of a CR, DX, MG or secondary capture file; messages begin with a verb."""
    file = read_file(data)
    kind = check_kind(file, reading)
    layout = layout_of(file.dataset)
    stored = read_pixels(file, layout)
    shades, steps = render(stored, layout, file.dataset, reading)
    steps = (f"DICOM, {syntax_of(file).name}", *kind, *steps, *aspect_note(file.dataset))
    return Gray(shades, steps, not_applicable=gate(facts_of(file.dataset), reading))


def check_header(data: bytes) -> None:
    """An error where a file is not DICOM, or where its elements pass the limits on their number,
    depth and inflated size."""
    if not is_dicom(data):
        raise DataError("is not a DICOM file.")
    read_file(data)


HEADER_BYTES = 2**20
"""Of a file, in which its header mostly ends."""


def read_facts(path: Path) -> DicomFacts | None:
    """The facts in a DICOM file's header; None where it is another file or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            return facts_of(read_file(head).dataset) if is_dicom(head) else None
    except (OSError, DataError):
        return None
