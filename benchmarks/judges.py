"""Which of a training's networks should judge, and together? No choice is made on test images.

    python benchmarks/judges.py train RECIPE NAME [--set KEY=VALUE ...] [--out FOLDER]
    python benchmarks/judges.py agree FOLDER/judges-A.npz FOLDER/judges-B.npz ...

`train` keeps a SQUID at each snapshot and scores images by several rules: by generator and
discriminator of one snapshot, by the last generator and all discriminators, and so on. AUCs are of
NIH's labelled images, which are there to develop on, or of healthy validation images against the
same with soft opacities put into the lungs. `agree` needs no label: how alike do trainings of
different seeds rank the same images (Spearman), by each rule?
"""

import argparse
import json
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from speed import provenance
from torch import Tensor

from squid.choices import Device
from squid.data.splits import NORMAL, Splits
from squid.detector import Detector, new_method
from squid.experiments import Quiet
from squid.methods.base import Method
from squid.methods.squid import Squid
from squid.metrics import auc
from squid.nn.gaussian import Gaussian, ledoit_wolf
from squid.recipe import Recipe, read_recipe
from squid.scoring import to_unit
from squid.train import Engine

Array = NDArray[np.float64]
State = Mapping[str, Tensor]
Labelled = tuple[Tensor, NDArray[np.int64] | None]
"""(n, 1, h, w) in [0, 1], and which of them are anomalous where that may be looked at."""

KNOWN = 600
"""Training images by whose scores all others are standardised."""
SHIFTS = ((-3, 0), (3, 0), (0, -3), (0, 3))
"""Pixels down and right."""
BATCH = 64


class Album(Quiet):
    """Keeps the weights of every snapshot."""

    def __init__(self, method: Squid) -> None:
        self.method = method
        self.states: list[State] = []
        self.epochs: list[int] = []

    def snapshot(self, epoch: int, method: Method) -> None:
        self.epochs.append(epoch)
        state = self.method.state_dict()
        self.states.append({name: value.detach().clone() for name, value in state.items()})


def image_sets(recipe: Recipe, splits: Splits) -> dict[str, Labelled]:
    healthy = to_unit(splits.validation.pixels[splits.validation.labels == NORMAL])
    kinds = np.repeat([0, 1], len(healthy))
    everything = to_unit(torch.cat((splits.validation.pixels, splits.test.pixels)))
    labels = np.concatenate((splits.validation.labels, splits.test.labels))
    may_look = recipe.data.name == "nih"
    return {
        "training": (to_unit(splits.train.pixels[:KNOWN]), None),
        "opacities": (torch.cat((healthy, with_opacities(healthy))), kinds),
        "evaluation": (everything, labels if may_look else None),
    }


def with_opacities(images: Tensor, seed: int = 0) -> Tensor:
    """One or two soft bright spots in the lung fields of each image (b, 1, h, w)."""
    generator = torch.Generator().manual_seed(seed)
    down, right = torch.meshgrid(
        *(torch.linspace(0, 1, side) for side in images.shape[-2:]), indexing="ij"
    )
    spoilt = images.clone()
    for image in spoilt[:, 0]:
        for _ in range(int(torch.randint(1, 3, (1,), generator=generator))):
            u = torch.rand(6, generator=generator)
            y, x = 0.35 + 0.35 * u[0], (0.2 if u[5] < 0.5 else 0.6) + 0.2 * u[1]
            height, width = 0.06 + 0.1 * u[2], 0.05 + 0.08 * u[3]
            spot = torch.exp(-(((down - y) / height) ** 2 + ((right - x) / width) ** 2) / 2)
            image += (0.25 + 0.4 * u[4]) * spot * (0.75 - image).clamp_min(0)
    return spoilt


class Bench:
    """Raw scores of images by the networks of an album."""

    def __init__(self, album: Album, engine: Engine) -> None:
        self.method, self.states, self.engine = album.method.eval(), album.states, engine
        prefix = "discriminator."
        self.judges = [
            {name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)}
            for state in album.states
        ]

    @torch.no_grad()
    def raw(self, sets: Mapping[str, Tensor]) -> dict[str, dict[str, Array]]:
        """By set and rule: (s, n), or (s, s, n) of each generator's reconstructions by every
        discriminator."""
        found: dict[str, dict[str, list[Array]]] = {name: {} for name in sets}
        for place, state in enumerate(self.states):
            self.method.load_state_dict(state)
            gaussian = self._gaussian(sets["training"])
            for name, images in sets.items():
                for rule, scores in self._by(place, images, gaussian).items():
                    found[name].setdefault(rule, []).append(scores)
        return {n: {rule: np.stack(s) for rule, s in by.items()} for n, by in found.items()}

    def _by(self, place: int, images: Tensor, gaussian: Gaussian) -> dict[str, Array]:
        reconstructions = self._over(self.method.reconstruct, images)
        moved = [self._over(self._shifted(shift), images) for shift in SHIFTS]
        scores = {
            "shifted": np.mean([self._over(self._doubt, one) for one in moved], 0),
            "image": self._over(self._doubt, images).double().numpy(),
            "error": (images - reconstructions).square().mean((1, 2, 3)).double().numpy(),
            "features": self._over(
                lambda x: gaussian.distance(self.method._pooled_features(x)[:, None])[:, 0],
                reconstructions,
            )
            .double()
            .numpy(),
        }
        by_judge = []
        for judge in self.judges:
            self.method.discriminator.load_state_dict(judge)
            by_judge.append(self._over(self._doubt, reconstructions).double().numpy())
        self.method.discriminator.load_state_dict(self.judges[place])
        return scores | {"pairs": np.stack(by_judge)}

    def _gaussian(self, training: Tensor) -> Gaussian:
        reconstructions = self._over(self.method.reconstruct, training)
        seen = self._over(self.method._pooled_features, reconstructions)
        gaussian = Gaussian()
        gaussian.fit(seen.mean(0)[None], ledoit_wolf(seen)[None])
        return gaussian.to(self.engine.device)

    def _doubt(self, images: Tensor) -> Tensor:
        logits: Tensor = self.method.discriminator(images, self.method.config.score_statistics)
        return -logits.mean(1)

    def _shifted(self, shift: tuple[int, int]) -> Callable[[Tensor], Tensor]:
        return lambda images: self.method.reconstruct(images.roll(shift, (2, 3)))

    def _over(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        device = self.engine.device
        batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
        with self.engine.autocast():
            parts = [function(part.to(device)).float().cpu() for part in batches]
        return torch.cat(parts)


def rules(raw: Mapping[str, Array], known: Mapping[str, Array], first: int) -> dict[str, Array]:
    """(n,) by each rule; scores are standardised by those of training images, and snapshots before
    the `first` say nothing."""
    z = {
        name: (values - known[name].mean(-1, keepdims=True)) / known[name].std(-1, keepdims=True)
        for name, values in raw.items()
    }
    pairs = z["pairs"][first:, first:]  # (generators, discriminators, n)
    own = np.stack([pairs[i, i] for i in range(len(pairs))])
    return {
        "the last snapshot": own[-1],
        "each snapshot": own.mean(0),
        "the last generator, all discriminators": pairs[-1].mean(0),
        "all generators, the last discriminator": pairs[:, -1].mean(0),
        "all pairs": pairs.mean((0, 1)),
        "each snapshot, four shifts": z["shifted"][first:].mean(0),
        "the last snapshot, four shifts": z["shifted"][-1],
        "each snapshot, of the image itself": z["image"][first:].mean(0),
        "each snapshot, distance of features": z["features"][first:].mean(0),
        "each snapshot, squared error": z["error"][first:].mean(0),
        "each snapshot, and squared error": own.mean(0) + z["error"][first:].mean(0),
    }


def train(options: argparse.Namespace) -> None:
    recipe = read_recipe(options.recipe, options.set)
    device: Device = options.device
    engine = Engine(device, precision=recipe.train.precision)
    splits = recipe.data.load(recipe.method.size)
    method = new_method(recipe)
    assert isinstance(method, Squid)
    album = Album(method)
    Detector.fit(recipe, splits, engine=engine, monitor=album, method=method)
    sets = image_sets(recipe, splits)
    raw = Bench(album, engine).raw({name: images for name, (images, _) in sets.items()})
    first = sum(epoch < options.first for epoch in album.epochs)
    scores = {name: rules(by, raw["training"], first) for name, by in raw.items()}
    result = {
        **provenance(engine.device.type),  # type: ignore[arg-type]
        "recipe": recipe.model_dump(mode="json"),
        "epochs": album.epochs[first:],
        "auc": {
            name: {rule: 100 * auc(values, labels) for rule, values in scores[name].items()}
            for name, (_, labels) in sets.items()
            if labels is not None
        },
    }
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"judges-{options.name}"
    file.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    np.savez_compressed(file.with_suffix(".npz"), **scores["evaluation"])  # type: ignore[arg-type]
    for name, aucs in result["auc"].items():
        for rule, value in aucs.items():
            print(f"{options.name}, {name}: {value:5.1f}  {rule}", flush=True)


def agree(options: argparse.Namespace) -> None:
    scores = [dict(np.load(path)) for path in options.files]
    for rule in scores[0]:
        pairs = combinations([one[rule] for one in scores], 2)
        print(f"{fmean(spearmanr(a, b).statistic for a, b in pairs):.3f}  {rule}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    one: Any = verbs.add_parser("train")
    one.add_argument("recipe", type=Path)
    one.add_argument("name")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    one.add_argument("--first", type=int, default=20, help="epoch from which snapshots speak")
    one.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    one.set_defaults(run=train)
    several: Any = verbs.add_parser("agree")
    several.add_argument("files", type=Path, nargs="+")
    several.set_defaults(run=agree)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
