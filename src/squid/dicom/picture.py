"""The picture of a result: the image under its heatmap, with a banner, a colour bar and a caption.

Nothing of the patient is written into it: names in pixels cannot be removed again.
"""

import numpy as np
import PIL.Image
import PIL.ImageDraw
from numpy.typing import NDArray

from squid.detector import Prediction
from squid.dicom.algorithm import Algorithm
from squid.dicom.wording import BANNER, answer, rarity
from squid.heatmaps import overlay, shared_scale
from squid.outputs.fonts import font

LONG_SIDE = 1024
"""Pixels. A full-size radiograph in RGB has ten megabytes and shows no more of a heatmap."""
BANNER_HEIGHT, CAPTION_HEIGHT, BAR_WIDTH = 44, 124, 92
NARROWEST = 760
"""Pixels that the caption needs."""
BLACK, WHITE, FAINT, AMBER = (0, 0, 0), (240, 240, 240), (165, 165, 165), (255, 191, 0)
OPACITY = 0.5


def picture(
    image: NDArray[np.float32],
    heatmap: NDArray[np.float32] | None,
    prediction: Prediction,
    algorithm: Algorithm,
    *,
    spacing: tuple[float, float] | None = None,
) -> NDArray[np.uint8]:
    """(h, w, 3): `image` (rows, columns) in [0, 1] as shown to a reader, under its heatmap
    where the method makes one."""
    width, height = _fitted(image.shape, spacing)
    lower = BANNER_HEIGHT + height
    canvas = PIL.Image.new(
        "RGB", (max(width + BAR_WIDTH, NARROWEST), lower + CAPTION_HEIGHT), BLACK
    )
    left = (canvas.width - BAR_WIDTH - width) // 2
    gray = _resized(image, (width, height), PIL.Image.Resampling.LANCZOS)
    canvas.paste(_coloured(gray, heatmap), (left, BANNER_HEIGHT))
    draw = PIL.ImageDraw.Draw(canvas)
    # The banner, over the whole width.
    draw.rectangle((0, 0, canvas.width, BANNER_HEIGHT - 1), fill=AMBER)
    draw.text((canvas.width / 2, BANNER_HEIGHT / 2), BANNER, BLACK, font(22, True), anchor="mm")
    if heatmap is not None:
        _add_colour_bar(canvas, draw, BANNER_HEIGHT, lower)
    # The caption, one line under the other.
    lines = (
        (rarity(prediction), WHITE, font(28, True), 26),
        (answer(prediction, algorithm.rate), WHITE, font(17), 63),
        (_maker_line(algorithm, heatmap is not None), FAINT, font(14), 92),
    )
    for text, colour, face, offset in lines:
        draw.text((16, lower + offset), text, colour, face, anchor="lm")
    return np.asarray(canvas)


def _fitted(shape: tuple[int, ...], spacing: tuple[float, float] | None) -> tuple[int, int]:
    """Width and height of the image in the picture, in the proportions of the body."""
    by_row, by_column = spacing or (1.0, 1.0)
    tall, wide = shape[0] * by_row, shape[1] * by_column
    factor = min(
        (LONG_SIDE - BANNER_HEIGHT - CAPTION_HEIGHT) / tall, (LONG_SIDE - BAR_WIDTH) / wide
    )
    return max(1, round(wide * factor)), max(1, round(tall * factor))


def _coloured(gray: NDArray[np.float32], heatmap: NDArray[np.float32] | None) -> PIL.Image.Image:
    if heatmap is None:
        return PIL.Image.fromarray(np.rint(255 * gray.clip(0, 1)).astype(np.uint8)).convert("RGB")
    size = gray.shape[1], gray.shape[0]
    heat = _resized(heatmap, size, PIL.Image.Resampling.BILINEAR)
    scale = shared_scale([heatmap])
    return PIL.Image.fromarray(overlay(gray, heat, scale=scale, opacity=OPACITY))


def _resized(
    values: NDArray[np.float32], size: tuple[int, int], resampling: PIL.Image.Resampling
) -> NDArray[np.float32]:
    plane = PIL.Image.fromarray(np.asarray(values, dtype=np.float32))
    return np.asarray(plane.resize(size, resampling))


def _add_colour_bar(
    canvas: PIL.Image.Image, draw: PIL.ImageDraw.ImageDraw, top: int, bottom: int
) -> None:
    """The colours over middle gray, the highest values at the top."""
    length, thickness = min(bottom - top - 72, 360), 20
    if length < 40:
        return
    ramp = np.repeat(np.linspace(1, 0, length)[:, None], thickness, axis=1)
    bar = PIL.Image.fromarray(overlay(np.full_like(ramp, 0.5), ramp, opacity=OPACITY))
    left = canvas.width - BAR_WIDTH + (BAR_WIDTH - thickness) // 2
    upper = (top + bottom - length) // 2
    canvas.paste(bar, (left, upper))
    draw.rectangle((left - 1, upper - 1, left + thickness, upper + length), outline=FAINT)
    middle = left + thickness / 2
    draw.text((middle, upper - 22), "highest", FAINT, font(13), anchor="mm")
    draw.text((middle, upper + length + 14), "median", FAINT, font(13), anchor="mm")


def _maker_line(algorithm: Algorithm, coloured: bool) -> str:
    maker = f"SQUID {algorithm.version}, method {algorithm.name}, model {algorithm.model[:12]}."
    return f"{maker} Colours: range of this image alone." if coloured else maker
