"""The picture of one explained image: input, reconstruction and heatmap at its own resolution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import PIL.Image
import PIL.ImageDraw
from numpy.typing import NDArray

from squid.heatmaps import overlay
from squid.outputs.fonts import font
from squid.outputs.names import printable
from squid.report.page import RESEARCH_ONLY

SMALLEST, LARGEST = 384, 4096
"""Pixels of an image's longer side in the picture. Smaller ones are enlarged by whole factors
without smoothing, so that a pixel stays a square; larger ones are reduced."""
PAPER, INK, FAINT, WARNING = (255, 255, 255), (27, 31, 36), (93, 102, 113), (198, 40, 40)
LETTER_SHARE = 26
"""One of so many parts of the longer side is the height of a letter."""

Gray = NDArray[np.floating]


@dataclass(frozen=True)
class Explanation:
    """What is shown of one image, apart from its pixels."""

    name: str
    answer: str
    """Its score and what that means."""
    heatmap_name: str
    warning: str = ""
    """Why this heatmap should not be read, '' where it may."""
    images: int = 1
    """Images that share the scale of the heatmap."""


def explanation_picture(
    image: PIL.Image.Image,
    reconstruction: Gray | None,
    heatmap: Gray,
    scale: tuple[float, float],
    about: Explanation,
) -> PIL.Image.Image:
    """Panels side by side in the image's own proportions, the colour bar, and what they are.

    `reconstruction` and `heatmap` have the method's size (size, size) and are stretched over the
    `image` (mode L), whose aspect the method did not keep either.
    """
    shown = _reduced(image)
    enlarged = max(1, -(-SMALLEST // max(shown.size)))
    side = enlarged * max(shown.size)
    coloured = overlay(np.asarray(shown) / 255.0, _stretched(heatmap, shown.size), scale=scale)
    computed = f"{heatmap.shape[1]} x {heatmap.shape[0]}"
    panels = [
        (f"input, {image.width} x {image.height} pixels", shown),
        (f"{about.heatmap_name}, {computed}", PIL.Image.fromarray(coloured)),
    ]
    if reconstruction is not None:
        levels = np.rint(255 * _stretched(reconstruction, shown.size).clip(0, 1))
        made = PIL.Image.fromarray(levels.astype(np.uint8))
        panels.insert(1, (f"reconstruction, {computed}", made))
    whole = [(title, _enlarged(panel, enlarged)) for title, panel in panels]
    return _composed(whole, scale, about, letter=max(14, side // LETTER_SHARE))


def _composed(
    panels: Sequence[tuple[str, PIL.Image.Image]],
    scale: tuple[float, float],
    about: Explanation,
    *,
    letter: int,
) -> PIL.Image.Image:
    """All on one white page; `letter` is the height of the text, and the measure of every gap."""
    plain, bold, small = font(letter), font(letter, True), font(max(12, letter * 3 // 4))
    width, height = panels[0][1].size
    # A narrow image still has room for the title of its panel.
    column = max(width, *(int(plain.getlength(title)) for title, _ in panels)) + letter
    lines = [
        (printable(about.name), INK, bold),
        (about.answer, INK, plain),
        *([(about.warning, WARNING, plain)] if about.warning else []),
    ]
    foot = [(_scale_line(about), FAINT, small), (RESEARCH_ONLY, FAINT, small)]
    bar_width = int(max(small.getlength(_number(value)) for value in scale)) + 2 * letter
    text_width = max(int(face.getlength(text)) for text, _, face in (*lines, *foot))
    page_width = letter + max(len(panels) * column + bar_width, text_width + letter)
    line = letter * 3 // 2
    top = letter + line * (len(lines) + 1)  # one more: the titles of the panels
    page = PIL.Image.new("RGB", (page_width, top + height + line * len(foot) + 2 * letter), PAPER)
    draw = PIL.ImageDraw.Draw(page)
    for number, (text, colour, face) in enumerate(lines):
        draw.text((letter, letter + number * line), text, colour, face)
    for number, (title, panel) in enumerate(panels):
        left = letter + number * column
        draw.text((left, top - line), title, FAINT, plain)
        page.paste(panel, (left, top))
    _add_colour_bar(page, draw, (letter + len(panels) * column, top, height), scale, letter)
    for number, (text, colour, face) in enumerate(foot):
        draw.text((letter, top + height + letter + number * line), text, colour, face)
    return page


def _add_colour_bar(
    page: PIL.Image.Image,
    draw: PIL.ImageDraw.ImageDraw,
    place: tuple[int, int, int],
    scale: tuple[float, float],
    letter: int,
) -> None:
    """The heatmap's colours over middle gray with the values of both ends, the higher on top."""
    left, top, height = place
    small = font(max(12, letter * 3 // 4))
    ramp = np.repeat(np.linspace(1, 0, height)[:, None], letter, axis=1)
    page.paste(PIL.Image.fromarray(overlay(np.full_like(ramp, 0.5), ramp)), (left, top))
    draw.rectangle((left, top, left + letter - 1, top + height - 1), outline=FAINT)
    beside = left + letter * 3 // 2
    draw.text((beside, top), _number(scale[1]), FAINT, small, anchor="lt")
    draw.text((beside, top + height), _number(scale[0]), FAINT, small, anchor="lb")


def _scale_line(about: Explanation) -> str:
    shared = "this image's" if about.images == 1 else f"shared by all {about.images:,} images"
    return f"Colours: from the median of the heatmap up, scale {shared}. Brighter: more anomalous."


def _number(value: float) -> str:
    return f"{value:.3g}"


def _reduced(image: PIL.Image.Image) -> PIL.Image.Image:
    share = min(1.0, LARGEST / max(image.size))
    size = max(1, round(share * image.width)), max(1, round(share * image.height))
    return image if share == 1.0 else image.resize(size, PIL.Image.Resampling.LANCZOS)


def _stretched(values: Gray, size: tuple[int, int]) -> NDArray[np.float32]:
    plane = PIL.Image.fromarray(np.asarray(values, dtype=np.float32))
    return np.asarray(plane.resize(size, PIL.Image.Resampling.BILINEAR))


def _enlarged(picture: PIL.Image.Image, factor: int) -> PIL.Image.Image:
    size = picture.width * factor, picture.height * factor
    return picture.resize(size, PIL.Image.Resampling.NEAREST)
