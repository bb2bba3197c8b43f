"""Recipe -> run -> numbers. One runner, used by `train`, `evaluate` and every table alike."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.calibration import Calibration, calibrate
from squid.config import Device, Selection, ThresholdKind
from squid.convert import read_reference
from squid.data.folder import Folder
from squid.data.image_set import NORMAL, ImageSet, Splits, check, digests, draw_groups
from squid.data.inputs import Images, read_images
from squid.detector import UNCALIBRATED, Detector, calibration_images, new_method
from squid.errors import DataError, DivergedError, RunError
from squid.evaluation.digits import measure_digits, train_reader
from squid.evaluation.metrics import BEST_ACCURACY, Threshold, evaluate, healthy, per_group_auc
from squid.evaluation.selection import SELECTION, healthy_threshold, select_scores
from squid.methods.base import Method
from squid.recipe import Recipe, read_recipe
from squid.run import Run, describe_environment
from squid.train import Engine, Epoch, Monitor
from squid.train.loop import State


class Recorder:
    """A monitor that writes the run folder, and passes on to another (a progress bar)."""

    def __init__(self, run: Run, splits: Splits, recipe: Recipe, beside: Monitor) -> None:
        self.run, self.beside, self._recipe = run, beside, recipe
        saved = run.snapshots or {}
        self._epochs: list[int] = saved["epochs"].tolist() if saved else []
        self._scores = {name: list(saved.get(name, [])) for name in ("validation", "test")}
        self._training = calibration_images(recipe, splits)
        self._images = {name: getattr(splits, name).pixels for name in self._scores}

    def progress(self, now: Epoch) -> None:
        self.beside.progress(now)

    def epoch(self, done: Epoch) -> None:
        self.run.add_history(done)
        self.beside.epoch(done)

    def snapshot(self, epoch: int, method: Method) -> None:
        """The test split is scored, not looked at: no choice is made from it."""
        scored = standardised_scores(method, self._recipe, self._training, self._images)
        # A resumed run repeats the snapshots since its state was saved: they are replaced.
        kept = sum(earlier < epoch for earlier in self._epochs)
        self._epochs[kept:] = [epoch]
        for name, scores in scored.items():
            self._scores[name][kept:] = [scores]
        self.run.save_snapshots(
            {"epochs": np.array(self._epochs), **{n: np.stack(s) for n, s in self._scores.items()}}
        )
        self.beside.snapshot(epoch, method)

    def save(self, state: State) -> None:
        self.run.save_state(state)
        self.beside.save(state)


def standardised_scores(
    method: Method, recipe: Recipe, training: Tensor, images: Mapping[str, Tensor]
) -> dict[str, NDArray[np.float64]]:
    """In standard deviations of the training images' scores, so that several trainings compare."""
    device: Device = "cuda" if next(method.parameters()).is_cuda else "cpu"
    detector = Detector(method, UNCALIBRATED, recipe, device=device)
    parts = [training, *images.values()]
    scored = detector.score(torch.cat(parts))  # in one go: full batches, few shapes
    seen, *others = np.split(scored, np.cumsum([len(part) for part in parts])[:-1])
    mean, std = seen.mean(), seen.std() or 1.0
    return {name: (scores - mean) / std for name, scores in zip(images, others, strict=True)}


def train_run(
    recipe: Recipe,
    out: Path,
    *,
    engine: Engine | None = None,
    monitor: Monitor | None = None,
    splits: Splits | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Detector:
    """Train a recipe into a run folder; `resume` goes on with an interrupted one, as it began, to
    the same weights."""
    run = open_unfinished(out) if resume else Run(out)
    recipe = run.recipe if resume else recipe
    engine = engine or Engine(precision=recipe.train.precision)
    engine.launch()
    splits = splits or recipe.data.load(recipe.method.size)
    if not resume:  # and the data could be read
        refusal = engine.from_leader(lambda: _create(out, recipe, overwrite))
        if refusal is not None:
            raise refusal
    state = run.load_state() if resume else None
    return _train(run, recipe, splits, engine, monitor or Monitor(), state)


def _create(out: Path, recipe: Recipe, overwrite: bool) -> RunError | None:
    """The reason against it is returned, for all processes to raise."""
    try:
        Run.create(out, recipe, overwrite=overwrite)
    except RunError as error:
        return error
    return None


def open_unfinished(out: Path) -> Run:
    """The run folder of an interrupted training."""
    run = Run.open(out)
    if run.finished:
        raise RunError(
            f"{out} is already finished: use it with squid evaluate {out}, or train it anew with "
            f"--out {out} --overwrite."
        )
    return run


def _train(
    run: Run, recipe: Recipe, splits: Splits, engine: Engine, monitor: Monitor, state: State | None
) -> Detector:
    method = new_method(recipe)
    recorder: Monitor = Monitor()
    if engine.leads:
        recorder = Recorder(run, splits, recipe, monitor)
        run.save_environment(describe_environment(recipe, splits, engine.device))
    try:
        detector = Detector.fit(
            recipe, splits, engine=engine, monitor=recorder, method=method, state=state
        )
    except DivergedError as error:
        raise DivergedError(
            f"{error} in {run.path / 'recipe.toml'}, then go on from the last good state with: "
            f"squid train --resume {run.path}"
        ) from None
    if engine.leads:
        run.save_method(method)
        run.save_calibration(detector.calibration)
        run.write_model_card(_model_card(run))
        run.drop_state()
    return detector


def train_seeds(
    recipe: Recipe,
    out: Path,
    seeds: int,
    *,
    engine: Engine,
    monitor: Monitor,
    splits: Splits,
    overwrite: bool = False,
) -> list[Path]:
    """One run folder per seed, one after the other: SQUID's step alone keeps a GPU busy. Finished
    ones are left."""
    folders = [out / f"seed-{seed}" for seed in range(recipe.seed, recipe.seed + seeds)]
    for seed, folder in enumerate(folders, recipe.seed):
        if Run(folder).finished and not overwrite:
            continue
        one = recipe.model_copy(update={"seed": seed})
        begun = (folder / "resume.pt").is_file() and not overwrite
        train_run(
            one, folder, engine=engine, monitor=monitor, splits=splits, resume=begun, overwrite=True
        )
    return folders


def convert_run(
    generator: Path, discriminator: Path, out: Path, *, overwrite: bool = False
) -> None:
    """A run folder from the authors' checkpoints. It scores; `calibrate_run` adds what scores
    mean."""
    method = read_reference(generator, discriminator)
    data = Folder(root=Path())
    recipe = Recipe(
        title="Converted from the authors' checkpoints", data=data, method=method.config
    )
    Detector(method, UNCALIBRATED, recipe, device="cpu").save(out, overwrite=overwrite)


def calibrate_run(out: Path, normals: Images, *, device: Device = "auto") -> Calibration:
    """Measure a run's calibration anew on healthy images that it was not trained on."""
    run = Run.open(out)
    detector = Detector.load(out, device=device)
    scores = detector.score(normals)
    rates = detector.rates
    calibration = calibrate(scores, scores, rates, source="healthy images given to calibrate")
    run.save_calibration(calibration)
    return calibration


def _model_card(run: Run) -> str:
    """What a reader of the folder must know before trusting it."""
    recipe, environment, calibration = run.recipe, run.environment, run.calibration
    training, size = environment["splits"]["train"], recipe.method.size
    facts = {
        "Method": f"{recipe.method.name}, {size} x {size} pixels, seed {recipe.seed}",
        "Trained on": f"{recipe.data.name}, {training['normal']} healthy and "
        f"{training['anomalous']} anomalous images, fingerprint {environment['data']}",
        "Thresholds": f"from {calibration.heldout} {calibration.source}; "
        "no anomalous image was used",
        "Made by": f"squid {environment['version']}, commit {environment['commit']}, "
        f"torch {environment['torch']}, {environment['device']}",
    }
    lines = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
    return f"# {recipe.title or run.name}\n\n{lines}\n\n{CAUTION}"


CAUTION = """Scores hold for images like those it was trained on: another hospital, machine or age
group needs its own calibration. A probability of 0.5 is the average healthy image; it is not a
chance of disease. For research use only; not a medical device.
"""


def evaluate_run(
    out: Path,
    *,
    rule: ThresholdKind = "normals",
    device: Device = "auto",
    selection: Selection = "last",
    settings: Sequence[str] = (),
    noise: float = 0.1,
    splits: Splits | None = None,
) -> dict[str, Any]:
    """Score the test split of the run's recipe; the numbers are also written to the run folder.

    With `settings` other data is scored (another hospital, another rule of DigitAnatomy), and
    nothing is written; nor is it for a `protocol` that asks the snapshots instead of the finished
    model. `splits` are the images, where they are read already.
    """
    run = Run.open(out)
    detector = Detector.load(out, device=device)
    recipe = run.recipe.with_settings(settings) if settings else run.recipe
    splits = splits or recipe.data.load(recipe.method.size)
    if not settings:
        _refuse_other_data(run, splits)
    test = splits.test
    if not len(test):
        raise DataError(f"The recipe of {out} has no test images; give its data a test split.")
    rate = recipe.false_positive_rate
    scores, value = _scores_by(selection, run, detector, splits, rate)
    threshold = BEST_ACCURACY if rule == "paper" else normals(value, rate)
    result = {
        "rule": rule,
        "selection": selection,
        "selection": SELECTION[selection],
        "data": recipe.data.name,
        "method": recipe.method.name,
        "seed": recipe.seed,
        "fingerprint": splits.fingerprint,
        **summarise(scores, test, threshold),
        **(_digit_measures(detector, splits, noise) if selection == "last" else {}),
        "scores": {
            "name": list(test.names),
            "score": scores.tolist(),
            "label": test.labels.tolist(),
            "finding": list(test.findings or []),
        },
    }
    if not settings and selection == "last":
        run.save_metrics(result)
    return result


def _scores_by(
    selection: Selection, run: Run, detector: Detector, splits: Splits, rate: float
) -> tuple[NDArray[np.float64], float]:
    """Scores of the test images, and the threshold that healthy images give."""
    if selection == "last":
        return detector.score(splits.test.pixels), detector.calibration.threshold(rate)
    if run.snapshots is None or run.snapshots["test"].shape[1] != len(splits.test):
        raise RunError(
            f"{run.path} has no snapshots of these images: train with train.snapshot_every, or "
            "leave --selection out."
        )
    labels = splits.validation.labels
    selected = select_scores(run.snapshots, labels)[selection]
    return selected.test, healthy_threshold(selected, labels, rate)


def summarise(
    scores: NDArray[np.float64], images: ImageSet, threshold: Threshold
) -> dict[str, Any]:
    """Every metric with its interval, and the AUC of each finding that has enough images."""
    metrics = evaluate(scores, images.labels, threshold=threshold).as_dict()
    groups = {}
    if images.findings is not None:
        found = per_group_auc(scores, images.labels, images.findings)
        groups = {name: group.model_dump(mode="json") for name, group in found.items()}
    return {"metrics": metrics, "findings": groups}


def _digit_measures(detector: Detector, splits: Splits, noise: float) -> dict[str, Any]:
    """DigitAnatomy knows every anomaly's place and kind, so more can be measured, also under
    noise."""
    if splits.test.cells is None:
        return {}
    reader = train_reader(splits.train)
    measure = partial(
        measure_digits, detector.method, splits, device=detector.device, reader=reader
    )
    with torch.no_grad():
        return {"digits": [measure(noise=std).as_dict() for std in (0.0, noise)]}


def _refuse_other_data(run: Run, splits: Splits) -> None:
    trained_on = run.environment.get("data")
    if trained_on not in (None, splits.fingerprint):
        raise DataError(
            f"The data of {run.path} changed since its training (fingerprint {splits.fingerprint}, "
            f"then {trained_on}); restore it or train again."
        )


def fit(
    images: Images,
    *,
    recipe: Recipe | Path | str,
    out: Path | str | None = None,
    device: Device = "auto",
) -> Detector:
    """Train on healthy images (a folder, files or an array), a tenth of them held out for the
    thresholds. The recipe says how; the data section of its file is not used.
    """
    given = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    if isinstance(images, (str, Path)) and Path(images).is_dir():
        data = Folder(root=Path(images), seed=given.seed, holdout=0.1)
        given, splits = given.model_copy(update={"data": data}), data.load(given.method.size)
    else:
        splits = _own_splits(images, given)
    engine = Engine(device, precision=given.train.precision)
    if out is not None:
        return train_run(given, Path(out), engine=engine, splits=splits)
    return Detector.fit(given, splits, engine=engine, monitor=Monitor())


def _own_splits(images: Images, recipe: Recipe) -> Splits:
    loaded = read_images(images, recipe.method.size)
    labels = np.full(len(loaded.sources), NORMAL)
    given = ImageSet(loaded.pixels, labels, loaded.sources)
    rng = np.random.default_rng(recipe.seed)
    held = draw_groups(digests(given), max(1, len(given) // 10), rng)
    nothing = given.select([])
    return check(Splits(given.select(~held), given.select(held), nothing, official=False))
