"""The picture of a capture: proportions kept, the heatmap in its place, words that fit."""

from dataclasses import replace

import numpy as np
import pytest

from squid.dicom.picture import AMBER, BANNER_HEIGHT, CAPTION_HEIGHT, LONG_SIDE, NARROWEST, picture
from squid.dicom.wording import answer, rarity

from .conftest import ALGORITHM, PREDICTION


def shown(image, heatmap, **options):
    return picture(image, heatmap, PREDICTION, ALGORITHM, **options)


def body(canvas: np.ndarray) -> np.ndarray:
    """The part between banner and caption."""
    return canvas[BANNER_HEIGHT:-CAPTION_HEIGHT].astype(int)


def extent(canvas: np.ndarray, level: int = 30) -> tuple[int, int]:
    """Height and width of what is not black, without the colour bar's column."""
    bright = body(canvas)[:, :-92].max(axis=2) > level
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    return int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


WHITE = np.ones((100, 60), np.float32)
COLD = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize(
    ("shape", "spacing", "proportion"),
    [
        ((100, 60), None, 100 / 60),
        ((60, 100), None, 60 / 100),
        ((2000, 200), None, 10),
        ((100, 100), (0.2, 0.1), 2),
        ((3000, 2500), (0.1, 0.1), 3000 / 2500),
    ],
)
def test_proportions_of_the_body_are_kept(shape, spacing, proportion):
    canvas = shown(np.ones(shape, np.float32), COLD, spacing=spacing)
    height, width = extent(canvas)
    assert height / width == pytest.approx(proportion, rel=0.02)
    assert max(canvas.shape) <= LONG_SIDE
    assert canvas.shape[1] >= NARROWEST


def test_the_banner_is_over_the_whole_width():
    canvas = shown(WHITE, COLD)
    assert (canvas[0] == AMBER).all()
    assert (canvas[BANNER_HEIGHT - 1] == AMBER).all()
    # Letters in it, and in the caption.
    assert (canvas[:BANNER_HEIGHT] == 0).all(axis=2).sum() > 500
    assert (canvas[-CAPTION_HEIGHT:] > 200).all(axis=2).sum() > 500


def test_the_heatmap_lies_where_it_belongs(heatmap):
    """Its peak is at row 22.5 and column 40.5 of 64; only colour differs from gray there."""
    canvas = shown(np.full((128, 128), 0.5, np.float32), heatmap)
    part = body(canvas)[:, :-92]
    colourful = np.ptp(part, axis=2)
    rows, columns = np.nonzero(colourful > 0.8 * colourful.max())
    height, width = part.shape[:2]
    assert rows.mean() / height == pytest.approx(22.5 / 64, abs=0.02)
    assert columns.mean() / width == pytest.approx(40.5 / 64, abs=0.02)


def test_half_of_the_image_keeps_its_gray():
    """Also where most of a heatmap is hot: the anatomy must stay visible."""
    heatmap = np.linspace(0, 1, 64 * 64).reshape(64, 64).astype(np.float32) ** 0.05
    part = body(shown(np.full((128, 128), 0.5, np.float32), heatmap))[:, :-92]
    coloured = np.ptp(part, axis=2) > 3
    assert coloured.mean() == pytest.approx(0.5, abs=0.05)


def test_without_a_heatmap_there_is_no_colour():
    canvas = shown(WHITE, None)
    assert (np.ptp(body(canvas), axis=2) == 0).all()


def test_bright_stays_bright():
    """The image is given as it is shown: nothing is inverted a second time."""
    halves = np.zeros((64, 64), np.float32)
    halves[:, :32] = 1
    part = body(shown(halves, COLD))[:, :-92]
    assert part[:, : part.shape[1] // 3].mean() > 250
    assert part[:, -part.shape[1] // 3 :].mean() < 5


def test_a_p_value_is_written_as_a_share_of_healthy_images():
    raw = replace(PREDICTION, p_value=None, rarity="")
    assert rarity(PREDICTION) == "1 in 20 healthy images scores this high"
    assert rarity(raw) == "Not calibrated: no p-value"


def test_the_answer_in_words():
    below, raw = replace(PREDICTION, flagged=False), replace(PREDICTION, flagged=None)
    target = "(target: 10 % false positives)"
    assert answer(PREDICTION, 0.1) == f"Score 3.213 reaches the operating point {target}"
    assert answer(below, None) == "Score 3.213 does not reach the operating point"
    assert answer(raw, None) == "Score 3.213, without an operating point"


def test_the_longest_caption_fits():
    """Nothing is cut off at the right, for scores and names as long as they get."""
    long = replace(ALGORITHM, name="synthetic_lesions", rate=0.0125, version="0.10.12")
    prediction = replace(PREDICTION, score=-1.234567e-05, flagged=False)
    canvas = picture(np.ones((2000, 200), np.float32), COLD, prediction, long)
    assert (canvas[-CAPTION_HEIGHT:, -8:] == 0).all()
