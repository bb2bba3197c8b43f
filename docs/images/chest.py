"""The README's picture of chest X-rays: the small default for radiographs, trained on ZhangLab.

    squid benchmark recipes/candidates.toml --sections zhanglab --rows small --seeds 1 \\
        --split validation --set train.precision=float32 --device cpu --out runs/chest
    python docs/images/chest.py runs/chest/zhanglab/small/seed-0

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
    heatmaps = detector.explain(pixels, "method")
    titles = ["healthy"] * EACH + ["pneumonia"] * EACH
    predictions = detector.predict(pixels[:, 0].numpy())
    examples = [
        Example(
            image=pixels[i, 0].numpy() / 255.0,
            title=f"{titles[i]}\n{'flagged, ' if one.flagged else ''}score {one.score:.1f}",
            heatmaps={"method": heatmaps[i]},
        )
        for i, one in enumerate(predictions)
    ]
    chart = Chart("chest", alt="", caption="", plot=lambda: sheet(examples))
    (Path(__file__).parent / "chest.png").write_bytes(chart.light)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
