"""One look for every figure, on light and on dark pages."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from squid.durable import replacing

Theme = Literal["light", "dark"]

# Okabe and Ito's colours: distinct for colour-blind eyes too, and legible on both themes.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#1f7bbf", "#d9601a", "#0b9e76", "#c46a9b", "#d99a12", "#4aa9dd",
)  # fmt: skip
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
NORMAL_COLOUR, ANOMALOUS_COLOUR = BLUE, VERMILION
DASHES = ("-", "--", ":", "-.")
DPI = 160
WIDTH = 11.2
"""Width of the widest figures in inches, as wide as a page of text."""

_INK: dict[Theme, dict[str, str]] = {
    "light": {"text": "#1b1f24", "faint": "#6b7480", "grid": "#e3e7ec", "page": "#ffffff"},
    "dark": {"text": "#e6e9ee", "faint": "#98a2ae", "grid": "#2c333c", "page": "#14181d"},
}

_SHAPES: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "squid",  # ids that do not change from run to run
}


@dataclass(frozen=True)
class Chart:
    """A figure of the report, rendered once for each theme."""

    name: str
    """The stem of its files."""
    alt: str
    caption: str
    """How to read it."""
    plot: Callable[[], Figure]
    wide: bool = False
    """A phone scrolls through it instead of shrinking it."""

    @cached_property
    def light(self) -> bytes:
        """PNG."""
        return self._rendered("light", "png")

    @cached_property
    def dark(self) -> bytes:
        return self._rendered("dark", "png")

    def save(self, folder: Path) -> None:
        """PNG and SVG, for papers and slides."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, data in (("png", self.light), ("svg", self._rendered("light", "svg"))):
            with replacing(folder / f"{self.name}.{kind}") as partial:
                partial.write_bytes(data)

    def _rendered(self, theme: Theme, kind: Literal["png", "svg"]) -> bytes:
        # The figure is made anew for each theme: matplotlib fixes colours when things are added.
        buffer = BytesIO()
        undated = {"Date": None} if kind == "svg" else None  # the same run, the same file
        with styled(theme), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # file names in any script
            self.plot().savefig(buffer, format=kind, dpi=DPI, metadata=undated)
        return buffer.getvalue()


@contextmanager
def styled(theme: Theme = "light") -> Iterator[None]:
    """Figures made within look like those of the report."""
    with mpl.rc_context({**_SHAPES, **_colours(_INK[theme])}):
        yield


def _colours(ink: dict[str, str]) -> dict[Any, Any]:
    parts = {
        "page": ("figure.facecolor", "savefig.facecolor", "axes.facecolor"),
        "text": ("text.color", "axes.labelcolor", "axes.titlecolor"),
        "faint": ("xtick.labelcolor", "ytick.labelcolor"),
        "grid": ("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"),
    }
    return {key: ink[part] for part, keys in parts.items() for key in keys}


def canvas(width: float, height: float) -> Figure:
    """An empty figure in inches, without a window system and without pyplot's global state."""
    # pyplot would keep every figure of a long-running process in memory.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(w_pad=0.05, h_pad=0.05, wspace=0.06, hspace=0.1)
    return figure


def panels(count: int, *, columns: int = 2, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """That many axes in rows; a last row may stay incomplete."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = canvas(WIDTH if columns > 1 else 0.6 * WIDTH, height * rows)
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    return figure, axes


def faint() -> str:
    """The colour of what stands back: reference lines, notes."""
    # Outside `styled` the label's colour is "inherit", which no artist takes.
    label = mpl.rcParams["xtick.labelcolor"]
    return str(mpl.rcParams["xtick.color"] if label == "inherit" else label)


def without_axes(axes: Axes) -> None:
    """For pictures."""
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def legend(axes: Axes, **options: Any) -> None:
    """Only where there is something to name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**options)
