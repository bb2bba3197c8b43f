"""The tutorial's picture, from the run that `make demo` leaves.

    python docs/images/demo.py

It shows the first test image of each kind of anomaly that has this anomaly alone, in one cell, and
the first two normal images.
"""

from pathlib import Path

import numpy as np

from squid.data.digitanatomy import CONDITIONS
from squid.data.image_set import NORMAL, ImageSet
from squid.detector import Detector
from squid.report.figures.images import Example, sheet
from squid.report.style import Chart

RUN = Path("runs/demo")


def places(test: ImageSet) -> dict[int, str]:
    """The images to show, each with its condition."""
    assert test.cells is not None
    single = (test.cells > 0).sum(1) == 1
    first = {
        int(np.flatnonzero(single & (test.cells == kind).any(1))[0]): name
        for kind, name in enumerate(CONDITIONS)
        if kind
    }
    normals = np.flatnonzero(test.labels == NORMAL)[:2]
    return first | {int(place): "normal" for place in normals}


def main() -> None:
    detector = Detector.load(RUN, device="cpu")
    test = detector.recipe.data.load(detector.recipe.method.size).test
    shown = places(test)
    assert test.cells is not None
    pixels = test.pixels[list(shown)]
    reconstructions, heatmaps = detector.reconstruct(pixels), detector.explain(pixels, "method")
    assert reconstructions is not None
    examples = [
        Example(
            image=pixels[i, 0].numpy() / 255.0,
            title=f"{shown[place]}\nscore {score:.2f}",
            reconstruction=reconstructions[i],
            heatmaps={"method": heatmaps[i]},
            cells=test.cells[place],
        )
        for i, (place, score) in enumerate(zip(shown, detector.score(pixels), strict=True))
    ]
    chart = Chart("demo", alt="", caption="", plot=lambda: sheet(examples))
    (Path(__file__).parent / "demo.png").write_bytes(chart.light)


if __name__ == "__main__":
    main()
