"""The letters of pictures that are put together without matplotlib."""

from functools import cache
from pathlib import Path

import matplotlib
import PIL.ImageFont


@cache
def font(size: int, bold: bool = False) -> PIL.ImageFont.FreeTypeFont:
    """A font that comes with matplotlib, so that pictures look alike on every machine."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return PIL.ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)
