"""The contour of the hottest region, in the image's own pixels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.path import Path as Polygon

from squid.dicom.region import hottest_region


def bump(row: float, column: float, size: int = 64, spread: float = 30.0) -> np.ndarray:
    rows, columns = np.mgrid[:size, :size]
    distance = (rows - row) ** 2 + (columns - column) ** 2
    return np.exp(-distance / (2 * spread)).astype(np.float32)


def test_the_contour_of_a_bump_is_a_circle_of_half_its_height():
    """exp(-r²/60) is 0.5 at r = 6.45; an image of 640 x 1280 stretches it 10 times down and 20
    across."""
    contour = hottest_region(bump(22, 40), (640, 1280))
    centre, radius = (40.5 * 20, 22.5 * 10), np.sqrt(60 * np.log(2))
    distance = np.hypot((contour[:, 0] - centre[0]) / 20, (contour[:, 1] - centre[1]) / 10)
    assert np.allclose(distance, radius, atol=0.05)
    assert np.array_equal(contour[0], contour[-1])


def test_only_the_hottest_of_several_regions_is_taken():
    contour = hottest_region(bump(12, 12) + 0.9 * bump(48, 48), (64, 64))
    assert contour.max() < 24


def test_a_ring_has_its_outer_contour():
    rows, columns = np.mgrid[:64, :64]
    distance = np.hypot(rows - 32, columns - 32)
    ring = ((distance > 10) & (distance < 20)).astype(np.float32)
    contour = hottest_region(ring, (64, 64))
    assert np.hypot(*(contour - 32.5).T).min() > 18


@pytest.mark.parametrize("corner", [(0, 0), (63, 63), (0, 63)])
def test_a_region_at_the_edge_stays_in_the_image(corner):
    contour = hottest_region(bump(*corner), (100, 200))
    assert contour.min() >= 0
    assert (contour <= [200, 100]).all()
    assert np.array_equal(contour[0], contour[-1])


@pytest.mark.parametrize("value", [0.0, 3.0, np.nan])
def test_nothing_stands_out_of_a_flat_heatmap(value):
    assert hottest_region(np.full((8, 8), value, np.float32), (64, 64)) is None


def test_of_two_nearly_equal_regions_the_higher_one_is_taken():
    heat = np.full((7, 9), -1.0, np.float32)
    heat[0, 0], heat[0, 2] = 0.0, 1e-38
    contour = hottest_region(heat, (70, 90))
    assert contour is not None
    assert Polygon(contour).contains_point((25.0, 5.0))


@settings(max_examples=100, deadline=None)
@given(arrays(np.float32, (7, 9), elements=st.floats(-1e6, 1e6, width=32)))
def test_a_contour_surrounds_the_highest_value(heat):
    contour = hottest_region(heat, (70, 90))
    if contour is not None:
        row, column = np.unravel_index(heat.argmax(), heat.shape)
        peak = (column * 10 + 5.0, row * 10 + 5.0)
        assert Polygon(contour).contains_point(peak)
