"""Does it matter when a training stops? The AUC had the generators been done earlier.

    python benchmarks/stopping.py [--seed 0] [--split test] [--set KEY=VALUE ...] [--runs FOLDER]

Trains `ours` of recipes/accuracy.toml as `squid benchmark` does, which finds it done when it is
given the same settings and that folder as --out. At snapshots of the last fifth of a member's
first stage a copy goes on to the stages after it as if that one had ended there; copies of all
members score together. Beside the AUCs stands how alike they rank the test images, for which no
label is needed. Choices are made on the labelled validation images; the test labels are for a
recipe that is frozen. What several such trainings say, each or together: together.py.
"""

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from agreement import Array, agreement
from speed import provenance
from torch import Tensor

from squid.benchmark.cell import rounded
from squid.benchmark.plan import plan_benchmark
from squid.data.cache import ImageStore
from squid.data.splits import Splits
from squid.detector import calibration_images
from squid.experiments import Quiet, standardised_scores, train_run
from squid.methods import build
from squid.methods.base import Method
from squid.metrics import auc
from squid.recipe import Recipe
from squid.run import Run
from squid.train import Engine, Epoch, train

STOPS = "stops.npz"
SHOWN = ("validation", "test")


class Stops(Quiet):
    """A monitor that lets copies of a member end earlier, and keeps what they say in the run
    folder."""

    def __init__(
        self, recipe: Recipe, splits: Splits, engine: Engine, run: Run, every: int
    ) -> None:
        first = build(recipe.method).stages()[0]
        assert first.epochs is not None
        self.recipe, self.engine, self.epochs = recipe, engine, first.epochs
        self.stops = [e for e in range(every, first.epochs + 1, every) if 5 * e >= 4 * first.epochs]
        self.store = ImageStore(splits.train.pixels, engine.device)
        self.training = calibration_images(recipe, splits)
        self.shown = {name: getattr(splits, name).pixels for name in SHOWN}
        self.file = run.path / STOPS
        self.said: dict[str, Array] = dict(np.load(self.file)) if self.file.is_file() else {}

    def epoch(self, done: Epoch) -> None:
        if done.epoch % 10 == 0:
            print(f"{done.stage} {done.epoch}/{done.epochs}", flush=True)

    def snapshot(self, epoch: int, method: Method) -> None:
        member, before = divmod(epoch - 1, self.epochs)
        if before + 1 in self.stops:
            self._stop(member, before + 1, method.state_dict())

    def _stop(self, member: int, epoch: int, weights: dict[str, Tensor]) -> None:
        state = {"stage": 1, "epoch": 0, "step": 0, "totals": {}, "optimizers": None}
        copy = build(self.recipe.method.model_copy(update={"members": 1}))
        settings = self.recipe.train.model_copy(update={"snapshot_every": None})
        train(
            copy, self.store, settings, seed=self.recipe.seed, engine=self.engine, monitor=Quiet(),
            state=state | {"method": weights},
        )  # fmt: skip
        scored = standardised_scores(copy, self.recipe, self.training, self.shown)
        self.said |= {f"{name} {epoch} {member}": scores for name, scores in scored.items()}
        with self.file.open("wb") as file:
            np.savez(file, **self.said)  # type: ignore[arg-type]

    def alone(self, name: str) -> list[dict[int, Array]]:
        """Scores of a split by each member, by the epoch at which it stopped."""
        members = range(self.recipe.method.members)
        return [{stop: self.said[f"{name} {stop} {m}"] for stop in self.stops} for m in members]

    def together(self, name: str) -> dict[int, Array]:
        """The same by all members."""
        alone = self.alone(name)
        return {stop: np.mean([said[stop] for said in alone], 0) for stop in self.stops}


def read(stops: Stops, splits: Splits, split: str) -> dict[str, Any]:
    labels = getattr(splits, split).labels
    said = stops.together(split)

    def aucs(said: dict[int, Array]) -> dict[int, float]:
        return {stop: auc(scores, labels) for stop, scores in said.items()}

    return {
        "split": split,
        "fingerprint": splits.fingerprint,
        "auc": aucs(said),
        "auc of members": [aucs(alone) for alone in stops.alone(split)],
        "agreement": agreement(combinations(stops.together("test").values(), 2)),
        "scores": {"label": labels.tolist()}
        | {str(stop): rounded(scores) for stop, scores in said.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", choices=("zhanglab", "nih"), default="zhanglab")
    parser.add_argument("--split", choices=SHOWN, default="validation")
    parser.add_argument("--every", type=int, default=20, help="epochs between stops")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/stopping"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    (cell,) = plan_benchmark(
        Path("recipes/accuracy.toml"), options.runs, methods=["ours"], data=[options.data],
        seeds=1, first_seed=options.seed, settings=options.set,
    ).cells  # fmt: skip
    recipe, run = cell.recipe, Run(cell.folder)
    every = recipe.train.snapshot_every
    if not every or options.every % every:
        parser.error(f"--every must be a multiple of train.snapshot_every, which is {every}.")
    splits = recipe.data.load(recipe.method.size)
    engine = Engine(options.device, precision=recipe.train.precision)
    stops = Stops(recipe, splits, engine, run, options.every)
    if run.finished and not stops.said:
        parser.error(f"{run.path} was trained without stops; choose another --runs.")
    if not run.finished:
        begun = (run.path / "resume.pt").is_file()
        train_run(recipe, run.path, engine=engine, monitor=stops, splits=splits, resume=begun)
    found = read(stops, splits, options.split)
    for epoch, value in found["auc"].items():
        print(f"stopped after epoch {epoch}: {options.split} AUC {100 * value:.1f}")
    spread = max(found["auc"].values()) - min(found["auc"].values())
    print(f"range {100 * spread:.1f}, rank correlation {found['agreement']:.3f}")
    result = provenance("cuda" if engine.device.type == "cuda" else "cpu")
    result["minutes"] = sum(float(row["seconds"]) for row in run.history) / 60
    result |= {"section": options.data, "row": "stops", "seed": options.seed}
    result |= {"recipe": recipe.model_dump(mode="json")} | found
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"stopping-{options.data}-{options.split}-seed-{options.seed}.json"
    file.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
