"""One DICOM file -> one gray image, with a record of what was done to it.

`elements` finds the elements within limits, `header` says which images are read, `pixels` decodes,
and `render` turns stored values into gray. Whatever is wrong raises one sentence.
"""

from pathlib import Path

from squid.data.dicom.elements import PREAMBLE, is_dicom, is_headerless, read_file
from squid.data.dicom.header import (
    MANUFACTURER,
    DicomFacts,
    OtherObject,
    aspect_note,
    facts_of,
    gate,
    kind_steps,
    layout_of,
    refusal,
)
from squid.data.dicom.pixels import read_pixels, syntax_of
from squid.data.dicom.render import render
from squid.data.gray import Gray
from squid.data.opening import open_regular
from squid.data.reading import DicomReading
from squid.errors import DataError

__all__ = [
    "HEADERLESS",
    "MANUFACTURER",
    "DicomFacts",
    "OtherObject",
    "check_header",
    "is_dicom",
    "is_headerless",
    "read_dicom",
    "read_facts",
]


HEADERLESS = "a DICOM data set without its header; export it as a DICOM file."
"""What is wrong with a file that `is_headerless`."""


def read_dicom(data: bytes, reading: DicomReading) -> Gray:
    """The image of a CR, DX, MG or secondary capture file; messages begin with a verb."""
    file = read_file(data)
    facts = facts_of(file)
    if reason := refusal(facts, reading):
        raise OtherObject(reason)
    layout = layout_of(file.dataset)
    stored = read_pixels(file, layout)
    shades, steps = render(stored, layout, file.dataset, reading)
    first = (f"DICOM, {syntax_of(file).name}", *kind_steps(facts, file.dataset))
    steps = (*first, *steps, *aspect_note(file.dataset))
    return Gray(shades, steps, not_applicable=gate(facts, reading))


def check_header(data: bytes) -> None:
    """An error where a file is not DICOM, or where its elements pass the limits on their number,
    depth and inflated size."""
    if not is_dicom(data):
        raise DataError(f"is {HEADERLESS}" if is_headerless(data) else "is not a DICOM file.")
    read_file(data)


HEADER_BYTES = (2**20, 2**26)
"""First bytes of a file: its header nearly always ends in the first number, and must end in the
second."""


def read_facts(path: Path) -> DicomFacts | None:
    """The facts in a DICOM file's header; None where it is another file or cannot be read."""
    for size in HEADER_BYTES:
        try:
            with open(path, "rb", opener=open_regular) as file:
                head = file.read(PREAMBLE)
                if not is_dicom(head):
                    return None
                return facts_of(read_file(head + file.read(size)))
        except (OSError, ValueError):  # a ValueError: the name holds a NUL
            return None
        except DataError:
            continue
    return None
