"""Do scores follow how sharp an image is, and what does preprocessing change?

    python benchmarks/sharpness.py RESULT.json... [--recipe recipes/zhanglab.toml] [--out FOLDER]

Nothing is trained. Rank correlations of each result's scores with minus sharpness, over all test
images, the healthy and the abnormal ones; and the AUC of the trivial controls on the labelled
validation images, as these are and changed in a few usual ways.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray
from saved import Result, read_results, results_parser
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr
from speed import provenance

from squid.data.image_set import Splits
from squid.evaluation.metrics import auc
from squid.evaluation.trivial import TRIVIAL, minus_sharpness
from squid.recipe import read_recipe

Bytes = NDArray[np.uint8]
Pixels = NDArray[np.float32]


def unchanged(images: Bytes) -> Pixels:
    return np.asarray(images / np.float32(255))


def standardised(images: Bytes) -> Pixels:
    pixels = unchanged(images)
    mean, deviation = (f((1, 2), keepdims=True) for f in (pixels.mean, pixels.std))
    return np.asarray((pixels - mean) / deviation)


def _each(change: Callable[[PIL.Image.Image], PIL.Image.Image]) -> Callable[[Bytes], Pixels]:
    def changed(images: Bytes) -> Pixels:
        return unchanged(np.stack([np.array(change(PIL.Image.fromarray(one))) for one in images]))

    return changed


CHANGES: dict[str, Callable[[Bytes], Pixels]] = {
    "as they are": unchanged,
    "histograms equalised": _each(PIL.ImageOps.equalize),
    "each standardised": standardised,
    "64 pixels": _each(lambda one: one.resize((64, 64), PIL.Image.Resampling.BICUBIC)),
    "blurred, sigma 2": lambda images: gaussian_filter(unchanged(images), (0, 2, 2)),
}


def followed(result: Result, blur: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """By protocol, the correlation over all, healthy and abnormal test images."""
    labels = np.array(result["scores"]["label"])
    groups = {"all": labels >= 0, "healthy": labels == 0, "abnormal": labels == 1}
    return {
        selection: {
            name: float(spearmanr(np.array(scores)[group], blur[group]).statistic)
            for name, group in groups.items()
        }
        for selection, scores in result["scores"].items()
        if selection != "label"
    }


def changed_trivial(splits: Splits) -> dict[str, dict[str, float]]:
    train, shown = splits.train.normals.pixels[:, 0].numpy(), splits.validation.pixels[:, 0].numpy()
    found = {}
    for name, change in CHANGES.items():
        known, judged = (change(images).reshape(len(images), -1) for images in (train, shown))
        found[name] = {
            control: 100 * auc(score(known, judged), splits.validation.labels)
            for control, score in TRIVIAL.items()
        }
    return found


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/zhanglab.toml"))
    options = parser.parse_args()
    recipe = read_recipe(options.recipe)
    splits = recipe.data.load(recipe.method.size)
    pixels = unchanged(splits.test.pixels.flatten(1).numpy())
    blur = minus_sharpness(pixels, pixels)
    summary: dict[str, Any] = {**provenance("cpu"), "follows minus sharpness": {}}
    for path, result in zip(options.results, read_results(options.results), strict=True):
        if result["scores"]["label"] != splits.test.labels.tolist():
            parser.error(f"{path} is of another split.")
        name = f"{result['row']}, seed {result['seed']}"
        summary["follows minus sharpness"][name] = found = followed(result, blur)
        for selection, groups in found.items():
            words = ", ".join(f"{group} {value:5.2f}" for group, value in groups.items())
            print(f"{name:24s} {protocol:10s} {words}")
    summary["validation AUC"] = changed_trivial(splits)
    for change, aucs in summary["validation AUC"].items():
        print(f"{change:24s} " + ", ".join(f"{c} {value:.1f}" for c, value in aucs.items()))
    file = options.out / f"sharpness-{recipe.data.name}.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
