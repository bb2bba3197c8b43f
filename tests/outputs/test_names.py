import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squid.outputs.names import FORMULA, cell_text, file_cell, portable, printable, text_cell

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

DIRECTION = {0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
MOVES_A_CURSOR = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029} | DIRECTION


@given(TEXT)
def test_no_cell_begins_like_a_formula_and_its_text_comes_back(text):
    cell = text_cell(text)
    assert not FORMULA.match(cell)
    assert cell_text(cell) == text


@given(TEXT)
def test_a_name_as_a_cell_names_the_same_file(name):
    cell = file_cell(name)
    assert not FORMULA.match(cell)
    if name and "\0" not in name:
        assert os.path.abspath(cell) == os.path.abspath(name)


@given(st.binary(max_size=12))
def test_every_file_name_can_be_written_and_shown(name):
    text = os.fsdecode(name)
    portable(text).encode()
    shown = printable(text)
    shown.encode()
    assert not MOVES_A_CURSOR & {ord(letter) for letter in shown}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("Größe 胸部", "Größe 胸部"),
        ("\udcff\udcfe", r"\xff\xfe"),
    ],
)
def test_nothing_moves_the_cursor_or_reorders_letters(text, shown):
    assert printable(text) == shown
