"""The paper's qualitative comparison on DigitAnatomy: what each method draws of the same images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from squid.benchmark.job import read_result
from squid.benchmark.plan import Job
from squid.benchmark.tables import NAMES
from squid.config import Device
from squid.data.digitanatomy import CONDITIONS, GRID
from squid.data.image_set import ImageSet
from squid.detector import Detector
from squid.evaluation.digits import Reader, train_reader
from squid.report.style import ORANGE, Chart, canvas, without_axes

SHOWN_ROWS = ("squid", "f_anogan", "ganomaly", "memae")
"""The rows that the paper sets side by side."""
_PICTURE = 1.55  # inches, with its gap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reconstructions:
    """What one method makes of the images of the sheet."""

    name: str
    pictures: Array  # (n, h, w)
    right: NDArray[np.bool_]  # (n, 9) cells that show the digit that belongs there
    restored: float | None
    """Share of anomalous cells of all test images."""


def digit_sheet(cells: Sequence[Job], *, device: Device = "auto") -> Chart | None:
    """The sheet of the first seed's runs; None where none of them draws."""
    done = _first_runs(cells)
    if not done:
        return None
    recipe = next(iter(done.values())).recipe
    splits = recipe.data.load(recipe.method.size)
    shown = pick_images(splits.test)
    reader = train_reader(splits.train)
    found = [
        one
        for name, cell in done.items()
        if (one := _reconstruct(name, cell, shown, reader, device)) is not None
    ]
    if not found:
        return None
    return Chart(
        name="digitanatomy",
        alt=f"DigitAnatomy images and what {len(found)} methods draw of them",
        caption="Outlined: anomalous cells. Under each drawing: of those, how many show the digit "
        "that belongs there, as a classifier reads them; under each method: that share over all "
        "test images.",
        draw=partial(draw_sheet, shown, found),
        wide=True,
    )


def _first_runs(cells: Sequence[Job]) -> dict[str, Job]:
    """By row, in the paper's order; runs of another size cannot stand on the same sheet."""
    found: dict[str, Job] = {}
    for name in SHOWN_ROWS:
        for cell in cells:
            if cell.row == name and name not in found and read_result(cell.folder) is not None:
                found[name] = cell
    sizes = [cell.recipe.method.size for cell in found.values()]
    return {name: cell for name, cell in found.items() if cell.recipe.method.size == sizes[0]}


def pick_images(test: ImageSet) -> ImageSet:
    """One image of each kind of anomaly, as pure as there is, then a healthy one."""
    assert test.cells is not None
    chosen = []
    for kind in range(1, len(CONDITIONS)):
        others = ((test.cells != 0) & (test.cells != kind)).sum(1)
        count = (test.cells == kind).sum(1)
        rank = np.where(count > 0, 10 * others - count, 1000)
        chosen.append(int(rank.argmin()))
    healthy = np.flatnonzero(~test.cells.any(1))[:1]
    return test.select([*dict.fromkeys(chosen), *healthy.tolist()])


def _reconstruct(
    name: str, cell: Job, images: ImageSet, reader: Reader, device: Device
) -> Reconstructions | None:
    pictures = Detector.load(cell.folder, device=device).reconstruct(images.pixels)
    if pictures is None:
        return None
    result = read_result(cell.folder)
    clean = result["digits"][0]["restoration"] if result and result["digits"] else None
    right = reader.right(torch.from_numpy(pictures)[:, None])
    return Reconstructions(
        NAMES[name], pictures.astype(np.float64), right, clean and clean["anomalous"]
    )


def draw_sheet(images: ImageSet, found: Sequence[Reconstructions]) -> Figure:
    """A row per image: the input, then each method's drawing."""
    count, columns = len(images), 1 + len(found)
    figure = canvas(_PICTURE * columns, (_PICTURE + 0.2) * count + 0.5)
    assert images.cells is not None
    inputs = images.pixels[:, 0].double().numpy() / 255
    for row in range(count):
        anomalous = images.cells[row] != 0
        for column in range(columns):
            axes = figure.add_subplot(count, columns, row * columns + column + 1)
            if column == 0:
                _picture(axes, inputs[row], "input" if row == 0 else "", images.findings, row)
                _outline(axes, anomalous, inputs.shape[1:])
            else:
                _reconstruction(axes, found[column - 1], row, anomalous)
    return figure


def _reconstruction(
    axes: Axes, one: Reconstructions, row: int, anomalous: NDArray[np.bool_]
) -> None:
    share = "-" if one.restored is None else f"{one.restored:.0%}"
    title = f"{one.name}\nrestored {share}" if row == 0 else ""
    _picture(axes, one.pictures[row], title, None, row)
    kept = anomalous if anomalous.any() else ~anomalous
    word = "restored" if anomalous.any() else "kept"
    right = int(one.right[row][kept].sum())
    axes.set_xlabel(f"{right} of {int(kept.sum())} {word}", fontsize=8)
    _outline(axes, anomalous, one.pictures.shape[1:])


def _picture(
    axes: Axes, picture: Array, title: str, findings: Sequence[str] | None, row: int
) -> None:
    without_axes(axes)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
    if title:
        axes.set_title(title, fontsize=9)
    if findings is not None:
        axes.set_xlabel((findings[row] or "normal").replace("|", ", "), fontsize=8)


def _outline(axes: Axes, anomalous: NDArray[np.bool_], shape: Sequence[int]) -> None:
    height, width = (side / GRID for side in shape)
    for place in np.flatnonzero(anomalous):
        row, column = divmod(int(place), GRID)
        corner = column * width - 0.5, row * height - 0.5
        axes.add_patch(
            Rectangle(corner, width, height, fill=False, edgecolor=ORANGE, linewidth=1.5)
        )
