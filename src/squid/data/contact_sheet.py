"""A contact sheet: small pictures of some images of a folder, with their class and name."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

from squid.data.checking import CheckedFile, FolderCheck
from squid.data.image import read_gray
from squid.data.reading import Reading
from squid.durable import replacing
from squid.errors import DataError

SHOWN = 64
COLUMNS = 8
SIDE, LABEL, GAP = 144, 30, 8
"""Pixels of a picture's longer side, of the text below it, and between two pictures."""
PAPER, INK, FRAME = 250, 20, 200
LETTERS = 24


def write_contact_sheet(check: FolderCheck, path: Path, reading: Reading) -> int:
    """Write a PNG of up to 64 images, evenly from every class folder; gives their number."""
    chosen = choose(check, SHOWN)
    if not chosen:
        raise DataError(f"{check.root} holds no readable image to show.")
    rows = -(-len(chosen) // COLUMNS)
    columns = min(COLUMNS, len(chosen))
    size = columns * (SIDE + GAP) + GAP, rows * (SIDE + LABEL + GAP) + GAP
    sheet = PIL.Image.new("L", size, PAPER)
    for number, file in enumerate(chosen):
        row, column = divmod(number, COLUMNS)
        _place(sheet, file, column * (SIDE + GAP) + GAP, row * (SIDE + LABEL + GAP) + GAP, reading)
    with replacing(path) as partial:
        sheet.save(partial, format="PNG")
    return len(chosen)


def choose(check: FolderCheck, most: int) -> list[CheckedFile]:
    """Images from all groups in turn, at even distances within each, sorted by group."""
    groups: dict[str, list[CheckedFile]] = defaultdict(list)
    for file in check.read:
        groups[file.group].append(file)
    # Small groups are shown whole; what they leave over goes to the larger ones.
    shares = dict.fromkeys(groups, 0)
    left = min(most, len(check.read))
    while left:
        for name in [name for name in groups if shares[name] < len(groups[name])][:left]:
            shares[name] += 1
            left -= 1
    chosen = []
    for name, files in groups.items():
        places = np.linspace(0, len(files) - 1, shares[name]).round().astype(int)
        chosen += [files[place] for place in places]
    return chosen


def _place(sheet: PIL.Image.Image, file: CheckedFile, x: int, y: int, reading: Reading) -> None:
    """One picture in its frame, with two lines of text."""
    picture = read_gray(file.path, reading=reading).picture()
    scale = SIDE / max(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    small = picture.resize((width, height), PIL.Image.Resampling.BICUBIC)
    draw = PIL.ImageDraw.Draw(sheet)
    draw.rectangle((x - 1, y - 1, x + SIDE, y + SIDE), outline=FRAME)
    sheet.paste(small, (x + (SIDE - width) // 2, y + (SIDE - height) // 2))
    font = PIL.ImageFont.load_default(11)
    taken = "anomalous" if file.finding else "normal"
    taken = taken if file.group == "all" else f"{taken}: {file.group}"
    # In an export by study, files of all folders have the same names.
    name = file.name if file.group == "all" else Path(file.name).name
    for line, text in enumerate((taken, name)):
        draw.text((x, y + SIDE + 3 + 13 * line), _short(text), INK, font)


def _short(text: str) -> str:
    """A text that fits below a picture, its end kept because that distinguishes files."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    half = LETTERS // 2 - 1
    return plain if len(plain) <= LETTERS else f"{plain[:half]}...{plain[1 - half :]}"
