"""Gray values of more than eight bits as shares of the range from black to white.

Radiographs have 10 to 16 significant bits, stored in words of 16. How many are significant decides
which value is white: 4,095 is white for 12 bits, and nearly black for 16.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from squid.errors import DataError

WORD = 16
"""Bits that a value is stored in."""
SMALL_SHARE = 8
"""Values below this part (an eighth) of the range are reported."""
ROWS = 256
"""Rows that are converted at a time, to bound memory."""


Entry = TypeVar("Entry", np.uint8, np.float32)


class RangeWarning(UserWarning):
    """An image uses a small part of its range, so that it comes out nearly black."""


@dataclass(frozen=True)
class Levels:
    """Stored gray values, and which of them is white."""

    values: NDArray[np.uint16]  # (h, w)
    bits: int = WORD
    """Significant bits: the largest value is 2^bits - 1."""
    inverted: bool = False
    """Whether zero is white."""

    def __post_init__(self) -> None:
        check_bits(self.bits)
        if self.values.size and (top := int(self.values.max())) >= 2**self.bits:
            raise DataError(
                f"holds the value {top:,}, more than {self.bits} bits; "
                f"set bits to {top.bit_length()} or more."
            )

    @cached_property
    def shares(self) -> NDArray[np.float32]:
        """(2^bits,) the share of white of each value."""
        shares = (np.arange(2**self.bits) / (2.0**self.bits - 1.0)).astype(np.float32)
        return shares[::-1] if self.inverted else shares

    def to_unit(self) -> NDArray[np.float32]:
        """(h, w) in [0, 1]."""
        return _look_up(self.shares, self.values)

    def to_bytes(self) -> NDArray[np.uint8]:
        """(h, w) from 0 to 255, rounded."""
        return _look_up(to_bytes(self.shares[None])[0], self.values)

    def small_range(self) -> str:
        """A warning about values that use a small part of the range; '' if there is none."""
        top = int(self.values.max()) if self.values.size else 0
        if not 0 < top < 2**self.bits // SMALL_SHARE:
            return ""
        return (
            f"uses the values {int(self.values.min()):,} to {top:,} of {2**self.bits - 1:,} "
            f"({100 * top / (2**self.bits - 1):.1f} %) and is read as nearly black; set bits to "
            f"the significant ones, such as {max(10, top.bit_length())}, or scale the values."
        )


@dataclass(frozen=True)
class Shades:
    """Stored values, and the share of white of each."""

    values: NDArray[np.uint8] | NDArray[np.uint16]  # (h, w)
    shares: NDArray[np.float32]
    """(n,) one for each value that can be stored."""

    def to_unit(self) -> NDArray[np.float32]:
        """(h, w) in [0, 1]."""
        return _look_up(self.shares, self.values)

    def to_bytes(self) -> NDArray[np.uint8]:
        """(h, w) from 0 to 255, rounded."""
        return _look_up(to_bytes(self.shares[None])[0], self.values)


def check_bits(bits: int) -> None:
    """Refuses a number of significant bits that no word holds."""
    if not 1 <= bits <= WORD:
        raise DataError(f"bits = {bits} is not possible; give 1 to {WORD}.")


def to_bytes(gray: np.ndarray) -> NDArray[np.uint8]:
    """(h, w) uint8 stays as it is; floats in [0, 1] are rounded to 0 to 255."""
    if gray.dtype == np.uint8:
        return gray
    rounded = np.empty(gray.shape, np.uint8)
    for start in range(0, len(gray), ROWS):
        part = gray[start : start + ROWS]
        rounded[start : start + ROWS] = (part * 255.0).round().clip(0.0, 255.0)
    return rounded


def _look_up(
    table: NDArray[Entry], values: NDArray[np.uint8] | NDArray[np.uint16]
) -> NDArray[Entry]:
    """The entry of each value, some rows at a time: NumPy widens an index to 64 bits."""
    found = np.empty(values.shape, table.dtype)
    for start in range(0, len(values), ROWS):
        found[start : start + ROWS] = table[values[start : start + ROWS]]
    return found
