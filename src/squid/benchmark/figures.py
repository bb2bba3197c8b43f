"""The paper's qualitative comparison of reconstructions on DigitAnatomy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from squid.benchmark.plan import Job
from squid.benchmark.store import read_result
from squid.config import Device
from squid.data.digitanatomy import CONDITIONS, GRID
from squid.data.image_set import ImageSet
from squid.detector import Detector
from squid.evaluation.digits import Reader, train_reader
from squid.report.style import ORANGE, Chart, canvas, without_axes

SHEET_ROWS = ("squid", "f_anogan", "ganomaly", "memae")
"""The rows that the paper compares."""
_PICTURE = 1.55  # inches, with its gap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reconstructions:
    """What one method makes of the images of the sheet."""

    title: str
    pictures: Array  # (n, h, w)
    right: NDArray[np.bool_]  # (n, 9) cells that show the digit that belongs there
    restored: float | None
    """Share of anomalous cells of all test images."""


def digit_sheet(jobs: Sequence[Job], *, device: Device = "auto") -> Chart | None:
    """The sheet of the first seed's runs; None where none of them reconstructs."""
    done = _first_runs(jobs)
    if not done:
        return None
    recipe = done[0].recipe
    splits = recipe.data.load(recipe.method.size)
    shown = pick_images(splits.test)
    reader = train_reader(splits.train)
    # Methods that reconstruct nothing have no column.
    made = [_reconstructions(job, shown, reader, device) for job in done]
    columns = [one for one in made if one is not None]
    if not columns:
        return None
    return Chart(
        name="digitanatomy",
        alt=f"DigitAnatomy images and the reconstructions of {len(columns)} methods",
        caption="Outlined: anomalous cells. Under each reconstruction: how many of those show the "
        "digit that belongs there, as a classifier reads them; under each method: that share over "
        "all test images.",
        plot=partial(plot_sheet, shown, columns),
        wide=True,
    )


def _first_runs(jobs: Sequence[Job]) -> list[Job]:
    """In the paper's order; runs of another image size cannot stand on the same sheet."""
    found: dict[str, Job] = {}
    # Jobs come in the order of seeds, so the first finished one of a row is kept.
    for row in SHEET_ROWS:
        for job in jobs:
            if job.row == row and row not in found and read_result(job.folder) is not None:
                found[row] = job
    sizes = [job.recipe.method.size for job in found.values()]
    return [job for job in found.values() if job.recipe.method.size == sizes[0]]


def pick_images(test: ImageSet) -> ImageSet:
    """One image of each kind of anomaly, with as few others as possible, then a healthy one."""
    assert test.cells is not None
    chosen = []
    for kind in range(1, len(CONDITIONS)):
        # Few other anomalies first, then many of this kind; images without it come last.
        others = ((test.cells != 0) & (test.cells != kind)).sum(1)
        count = (test.cells == kind).sum(1)
        rank = np.where(count > 0, 10 * others - count, 1000)
        chosen.append(int(rank.argmin()))
    # Two kinds may choose the same image, which the sheet shows once.
    healthy = np.flatnonzero(~test.cells.any(1))[:1]
    return test.select([*dict.fromkeys(chosen), *healthy.tolist()])


def _reconstructions(
    job: Job, images: ImageSet, reader: Reader, device: Device
) -> Reconstructions | None:
    detector = Detector.load(job.folder, device=device, backend="torch")
    pictures = detector.reconstruct(images.pixels)
    result = read_result(job.folder)
    if pictures is None or result is None:
        return None
    digits = result["final"].digits
    restoration = digits[0].restoration if digits else None
    # Read here cell by cell; the share over all test images is in the result already.
    right = reader.right(torch.from_numpy(pictures)[:, None])
    restored = restoration.anomalous if restoration else None
    return Reconstructions(job.title, pictures.astype(np.float64), right, restored)


def plot_sheet(images: ImageSet, methods: Sequence[Reconstructions]) -> Figure:
    """A row per image: the input, then each method's reconstruction."""
    count, columns = len(images), 1 + len(methods)
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
                _reconstruction(axes, methods[column - 1], row, anomalous)
    return figure


def _reconstruction(
    axes: Axes, method: Reconstructions, row: int, anomalous: NDArray[np.bool_]
) -> None:
    share = "-" if method.restored is None else f"{100 * method.restored:.0f} %"
    title = f"{method.title}\nrestored {share}" if row == 0 else ""
    _picture(axes, method.pictures[row], title, None, row)
    # A healthy image has nothing to restore: there it counts how many digits were kept.
    kept = anomalous if anomalous.any() else ~anomalous
    word = "restored" if anomalous.any() else "kept"
    right = int(method.right[row][kept].sum())
    axes.set_xlabel(f"{right} of {int(kept.sum())} {word}", fontsize=8)
    _outline(axes, anomalous, method.pictures.shape[1:])


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
