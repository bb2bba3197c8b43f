"""The hottest region of a heatmap as a closed contour."""

import numpy as np
from contourpy import contour_generator
from matplotlib.path import Path as Polygon
from numpy.typing import NDArray

LEVEL = 0.5
"""The contour's height between the heatmap's median and its highest value."""


def hottest_region(
    heatmap: NDArray[np.float32], size: tuple[int, int]
) -> NDArray[np.float64] | None:
    """(n, 2) points as (column, row) in an image of `size` rows and columns, the last as the first;
    None where nothing in the heatmap stands out.

    A pixel is one unit wide, and 0 is the outer edge of the first, as in DICOM's PIXEL units.
    """
    heat = np.asarray(heatmap, dtype=np.float64)
    median, highest = float(np.median(heat)), float(heat.max())
    if not 0 < highest - median < np.inf:
        return None
    # From 0 at the median to 1; a border of zeros closes the contours of regions at the edge.
    padded = np.pad(((heat - median) / (highest - median)).clip(0, 1), 1)
    # Of the values themselves: rounding may make another one equal after the division.
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    found = contour_generator(z=padded).lines(LEVEL)
    lines: list[NDArray[np.float64]] = [np.asarray(line) for line in found]
    around = [line for line in lines if Polygon(line).contains_point((column + 1.0, row + 1.0))]
    # A ring has an inner contour too, which is left out.
    outer = max(around, key=lambda line: float(np.prod(np.ptp(line, axis=0))))
    scale = np.array([size[1] / heat.shape[1], size[0] / heat.shape[0]])
    # Minus the border; plus half, since the values lie at the centres of pixels.
    points: NDArray[np.float64] = (outer - 1 + 0.5) * scale
    return points.clip(0, [size[1], size[0]])
