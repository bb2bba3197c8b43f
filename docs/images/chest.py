"""The README's picture of chest X-rays, from a run on ZhangLab.

    squid train recipes/zhanglab.toml --out runs/zhanglab --set method.members=1 \\
        --set method.epochs=120 --set method.target_updates=12
    python docs/images/chest.py runs/zhanglab

It shows the first three healthy test images and the first three with pneumonia, in the order of
their names: none is picked for its looks. ZhangLab: Kermany et al., Cell 2018, CC BY 4.0.
"""

import sys
from pathlib import Path

import numpy as np

from squid.data.image_set import ANOMALOUS, NORMAL, ImageSet
from squid.detector import Detector
from squid.report.figures.images import Example, sheet
from squid.report.style import Chart

EACH = 3


def indices(test: ImageSet) -> list[int]:
    """The first images of each class by name."""
    order = np.argsort(np.array(test.names))
    return [
        int(i) for label in (NORMAL, ANOMALOUS) for i in order[test.labels[order] == label][:EACH]
    ]


def main(run: Path) -> None:
    detector = Detector.load(run, backend="torch")
    test = detector.recipe.data.load(detector.recipe.method.size).test
    shown = indices(test)
    pixels = test.pixels[shown]
    reconstructions, heatmaps = detector.reconstruct(pixels), detector.explain(pixels, "method")
    assert reconstructions is not None
    titles = ["healthy"] * EACH + ["pneumonia"] * EACH
    examples = [
        Example(
            image=pixels[i, 0].numpy() / 255.0,
            title=f"{titles[i]}\nscore {score:.2f}",
            reconstruction=reconstructions[i],
            heatmaps={"method": heatmaps[i]},
        )
        for i, score in enumerate(detector.score(pixels))
    ]
    chart = Chart("chest", alt="", caption="", plot=lambda: sheet(examples))
    (Path(__file__).parent / "chest.png").write_bytes(chart.light)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
