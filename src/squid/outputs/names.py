"""Text of files and users as terminals, spreadsheets and other programs can bear it."""

import re
import unicodedata

FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""First letters that make a spreadsheet take a cell for a formula, full-width forms included."""
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of control characters, marks of direction, and line breaks."""


def portable(name: str) -> str:
    r"""A name in valid Unicode: bytes of a file name that are not UTF-8 are written as \xff."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable(text: object) -> str:
    r"""Text for a terminal. Control characters, which could move its cursor or change its title,
    and marks that reorder letters are written as \x1b or \u202e."""
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in HIDDEN
        else letter
        for letter in portable(str(text))
    )


def file_cell(name: str) -> str:
    """A file name as a cell of a spreadsheet. `./` before a relative name names the same file, and
    no formula begins with it."""
    name = portable(name)
    return f"./{name}" if FORMULA.match(name) else name


def text_cell(text: str) -> str:
    """Other text as a cell: an apostrophe keeps it from being run. `cell_text` takes it off."""
    text = portable(text)
    return f"'{text}" if FORMULA.match(text) or text.startswith("'") else text


def cell_text(cell: str) -> str:
    """The text of a cell that `text_cell` made."""
    return cell.removeprefix("'")
