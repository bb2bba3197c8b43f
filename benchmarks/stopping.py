"""Does it matter when a training stops? The AUC had the generator been done earlier.

    python benchmarks/stopping.py [--recipe FILE] [--seed 0] [--readings 5] [--set KEY=VALUE ...]

At several epochs of the last fifth of a member's first stage a copy goes on to the stages after it
as if that one had ended there; copies of all members score together. Beside the AUCs, of the
labelled validation images and of the test images, stands how alike they rank the latter, for which
no label is needed.
"""

import argparse
import copy
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from agreement import Array, agreement
from speed import provenance
from torch import Tensor

from squid.choices import Device
from squid.data.cache import ImageStore
from squid.data.splits import Splits
from squid.methods import build
from squid.methods.base import Method
from squid.metrics import auc
from squid.recipe import Recipe, read_recipe
from squid.train import Engine, train
from squid.train.loop import Epoch, State

SEEDS_APART = 100
"""Of one member from the next."""
READ = ("validation", "test")


class Copyist:
    """A monitor that keeps the method's state at some epochs of the first stage."""

    def __init__(self, method: Method, readings: int) -> None:
        first = method.stages()[0]
        assert first.epochs is not None
        self.method, self.stage = method, first.name
        earliest = round(0.8 * first.epochs)
        self.epochs = {round(e) for e in np.linspace(earliest, first.epochs, readings)}
        self.states: dict[int, Mapping[str, Tensor]] = {}

    def progress(self, now: Epoch) -> None:
        print(f"{now.stage} {now.epoch}/{now.epochs}", end="\r", flush=True)

    def epoch(self, done: Epoch) -> None:
        self.progress(done)
        if done.stage == self.stage and done.epoch in self.epochs:
            self.states[done.epoch] = copy.deepcopy(self.method.state_dict())

    def snapshot(self, epoch: int, method: Method) -> None: ...

    def save(self, state: State) -> None: ...


def scores(method: Method, images: ImageStore, engine: Engine) -> Array:
    with torch.no_grad(), engine.autocast():
        return torch.cat([method.score(i).double() for i, _ in images.batches(256)]).cpu().numpy()


def in_units_of_training(by_split: Mapping[str, Array]) -> dict[str, Array]:
    mean, spread = by_split["train"].mean(), by_split["train"].std()
    return {split: (by_split[split] - mean) / spread for split in READ}


def read(
    recipe: Recipe, splits: Splits, seed: int, readings: int, device: Device
) -> dict[int, dict[str, Array]]:
    """Scores of the images of each split, by the epoch at which the first stage ended."""
    config = recipe.method.model_copy(update={"members": 1})
    engine = Engine(device, precision=recipe.train.precision)
    stores = {name: ImageStore(images.pixels, engine.device) for name, images in splits.items()}
    settings = recipe.train.model_copy(update={"snapshot_every": None})
    run = partial(train, store=stores["train"], config=settings, engine=engine)
    found: dict[int, list[dict[str, Array]]] = defaultdict(list)
    for number in range(recipe.method.members):
        own = seed + SEEDS_APART * number
        torch.manual_seed(own)
        method = build(config)
        copyist = Copyist(method, readings)
        run(method, seed=own, monitor=copyist)
        for epoch, weights in copyist.states.items():
            state = {"stage": 1, "epoch": 0, "step": 0, "totals": {}, "optimizers": None}
            after = build(config)
            run(after, seed=own, monitor=copyist, state=state | {"method": weights})
            by_split = {name: scores(after, store, engine) for name, store in stores.items()}
            found[epoch].append(in_units_of_training(by_split))
    return {
        epoch: {split: np.mean([member[split] for member in members], 0) for split in READ}
        for epoch, members in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, default=Path("recipes/zhanglab.toml"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readings", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe, options.set)
    began = time.monotonic()
    splits = recipe.data.load(recipe.method.size)
    found = read(recipe, splits, options.seed, options.readings, options.device)
    print()
    labels = {name: images.labels for name, images in splits.items()}
    aucs = {
        split: {epoch: auc(reading[split], labels[split]) for epoch, reading in found.items()}
        for split in READ
    }
    alike = agreement(combinations((reading["test"] for reading in found.values()), 2))
    for split, by_epoch in aucs.items():
        shown = ", ".join(f"{epoch}: {100 * value:.1f}" for epoch, value in by_epoch.items())
        spread = max(by_epoch.values()) - min(by_epoch.values())
        print(f"{split} AUC, stopped after epoch {shown}; range {100 * spread:.1f}")
    print(f"rank correlation of test scores {alike:.3f}")
    result = provenance(options.device) | {"minutes": (time.monotonic() - began) / 60}
    result |= {"recipe": recipe.model_dump(mode="json"), "seed": options.seed}
    result |= {"auc": aucs, "agreement": alike}
    file = options.out / f"stopping-{options.recipe.stem}-seed-{options.seed}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
