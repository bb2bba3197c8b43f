"""Sides that can be halved, how often, and the smallest map."""

import pytest

from squid.nn.pyramid import count_halvings, doubling_widths, smallest_side


@pytest.mark.parametrize(
    ("size", "smallest", "halvings"),
    [(32, 4, 3), (48, 3, 4), (64, 4, 4), (96, 3, 5), (128, 4, 5), (192, 3, 6), (256, 4, 6)],
)
def test_halvings_end_at_four_or_three(size, smallest, halvings):
    assert (smallest_side(size), count_halvings(size)) == (smallest, halvings)
    assert smallest << halvings == size


def test_widths_double_up_to_the_widest():
    assert doubling_widths(4, 4) == (4, 8, 16, 32)
    assert doubling_widths(4, 4, widest=16) == (4, 8, 16, 16)
