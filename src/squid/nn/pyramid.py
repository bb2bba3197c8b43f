"""Pyramids of maps, each half as large as the one before: their number and their widths."""

from typing import Annotated

from pydantic import AfterValidator, Field


def _check_side(size: int) -> int:
    # `size & -size` is the largest power of two that divides the size.
    if size < 32 or size // (size & -size) not in (1, 3):  # the odd factor
        raise ValueError(
            f"{size} cannot be halved down to 4 or 3; choose a power of two or three times one, "
            "from 32 on: 32, 48, 64, 96, 128, ..."
        )
    return size


Side = Annotated[int, Field(le=4096), AfterValidator(_check_side)]
"""Side of an image that can be halved down to 4 x 4, or to 3 x 3."""


def smallest_side(size: int) -> int:
    """The smallest map of a `Side` after all halvings: 4, or 3 where it divides by 3."""
    return 3 if size % 3 == 0 else 4


def count_halvings(size: int) -> int:
    """How often a `Side` is halved until its smallest map."""
    return (size // smallest_side(size)).bit_length() - 1


def doubling_widths(width: int, levels: int, widest: int | None = None) -> tuple[int, ...]:
    """Channels of successive levels: twice as many each time, up to `widest`."""
    return tuple(min(width << level, widest or width << level) for level in range(levels))
