"""Does it matter when a training stops? The AUC had the generator been done earlier.

    python benchmarks/stopping.py [--recipe FILE] [--seed 0] [--split test] [--set KEY=VALUE ...]

At several epochs of the last fifth of a member's first stage a copy goes on to the stages after it
as if that one had ended there; copies of all members score together. Beside the AUCs stands how
alike they rank the images, for which no label is needed. Choices are made on the labelled
validation images; the test images are for a recipe that is frozen.
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
from squid.data.splits import ImageSet
from squid.methods import build
from squid.methods.base import Method
from squid.metrics import auc
from squid.recipe import Recipe, read_recipe
from squid.train import Engine, train
from squid.train.loop import Epoch, State

SEEDS_APART = 100
"""Of one member from the next."""


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


def in_units_of_training(
    method: Method, images: ImageStore, store: ImageStore, engine: Engine
) -> Array:
    seen = scores(method, store, engine)
    return np.asarray((scores(method, images, engine) - seen.mean()) / seen.std())


def read(
    recipe: Recipe, train_on: ImageSet, shown: ImageSet, seed: int, readings: int, device: Device
) -> dict[int, Array]:
    """Scores of the images `shown`, by the epoch at which the first stage ended."""
    config = recipe.method.model_copy(update={"members": 1})
    engine = Engine(device, precision=recipe.train.precision)
    store, images = (ImageStore(s.pixels, engine.device) for s in (train_on, shown))
    settings = recipe.train.model_copy(update={"snapshot_every": None})
    run = partial(train, store=store, config=settings, engine=engine)
    found: dict[int, list[Array]] = defaultdict(list)
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
            found[epoch].append(in_units_of_training(after, images, store, engine))
    return {epoch: np.mean(members, 0) for epoch, members in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", type=Path, default=Path("recipes/zhanglab.toml"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--readings", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe, options.set)
    began = time.monotonic()
    splits = recipe.data.load(recipe.method.size)
    shown = splits.test if options.split == "test" else splits.validation
    found = read(recipe, splits.train, shown, options.seed, options.readings, options.device)
    print()
    aucs = {epoch: auc(score, shown.labels) for epoch, score in found.items()}
    alike = agreement(combinations(found.values(), 2))
    for epoch, value in aucs.items():
        print(f"stopped after epoch {epoch}: {options.split} AUC {100 * value:.1f}")
    spread = max(aucs.values()) - min(aucs.values())
    print(f"range {100 * spread:.1f}, rank correlation {alike:.3f}")
    result = provenance(options.device) | {"minutes": (time.monotonic() - began) / 60}
    result |= {"recipe": recipe.model_dump(mode="json"), "seed": options.seed}
    result |= {"split": options.split, "auc": aucs, "agreement": alike}
    file = options.out / f"stopping-{options.recipe.stem}-{options.split}-seed-{options.seed}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
