"""Pyramids of maps, each half as large as the last: how many there are and how wide."""

from typing import Annotated

from pydantic import AfterValidator


def _check_side(size: int) -> int:
    if size < 32 or size & (size - 1):
        raise ValueError(f"{size} cannot be halved down to 4; choose a power of two from 32 on.")
    return size


Side = Annotated[int, AfterValidator(_check_side)]
"""Of an image that can be halved down to 4 x 4."""


def count_halvings(size: int, smallest: int) -> int:
    """How often `size` is halved until `smallest` is left."""
    return (size // smallest).bit_length() - 1


def doubling_widths(width: int, levels: int, widest: int | None = None) -> tuple[int, ...]:
    """Channels of successive levels: twice as many each time, up to `widest`."""
    return tuple(min(width << level, widest or width << level) for level in range(levels))
