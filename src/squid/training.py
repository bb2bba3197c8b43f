"""From a recipe to a run folder: train it, calibrate it, write down what a user must know."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from squid.calibration import UNCALIBRATED, CalibrationNote, calibrate
from squid.calibration.facts import image_facts
from squid.config import Device
from squid.data.files import unusable
from squid.data.folder import Folder
from squid.data.headers import not_asked_for, patients_of, read_headers
from squid.data.image_set import NORMAL, ImageSet, Splits, check, digests, draw_groups
from squid.data.inputs import Images, read_images
from squid.data.pixels import add_noise
from squid.data.reading import Reading
from squid.data.store import ImageStore, transform
from squid.detector import Detector
from squid.errors import DataError, DivergedError, RunError, SquidError
from squid.methods import build
from squid.methods.base import Method
from squid.nn.lungs import what_counts
from squid.recipe import Recipe, radiograph_recipe, read_recipe
from squid.run import Run, describe_environment
from squid.train import Engine, Epoch, Monitor, State, check_batches, train
from squid.train.engine import pick_device


class Recorder(Monitor):
    """Writes the run folder, and passes everything on to another monitor (a progress bar)."""

    def __init__(self, run: Run, splits: Splits, recipe: Recipe, monitor: Monitor) -> None:
        self.run, self.monitor, self._recipe = run, monitor, recipe
        saved = run.snapshots or {}
        self._epochs: list[int] = saved["epochs"].tolist() if saved else []
        self._training = calibration_images(recipe, splits)
        self._images = {"validation": splits.validation.pixels, "test": splits.test.pixels}
        if recipe.train.snapshot_noise:
            self._images["noisy"] = add_noise(splits.test.pixels, recipe.train.snapshot_noise)
        self._scores = {name: list(saved.get(name, [])) for name in self._images}

    def progress(self, now: Epoch) -> None:
        self.monitor.progress(now)

    def epoch(self, done: Epoch) -> None:
        self.run.add_history(done)
        self.monitor.epoch(done)

    def snapshot(self, epoch: int, method: Method) -> None:
        """Scores of the test split are stored only: no choice is made from them."""
        scored = standardised_scores(method, self._recipe, self._training, self._images)
        # A resumed run repeats the snapshots since its state was saved: they are replaced.
        kept = sum(earlier < epoch for earlier in self._epochs)
        self._epochs[kept:] = [epoch]
        for name, scores in scored.items():
            self._scores[name][kept:] = [scores]
        self.run.save_snapshots(
            {"epochs": np.array(self._epochs), **{n: np.stack(s) for n, s in self._scores.items()}}
        )
        self.monitor.snapshot(epoch, method)

    def save(self, state: State) -> None:
        self.run.save_state(state)
        self.monitor.save(state)


def standardised_scores(
    method: Method, recipe: Recipe, training: Tensor, images: Mapping[str, Tensor]
) -> dict[str, NDArray[np.float64]]:
    """In standard deviations of the training images' scores, so that several trainings compare.

    The method is in eval mode afterwards; a training sets it back to train mode at the beginning of
    each epoch.
    """
    detector = Detector(method, UNCALIBRATED, recipe, device=next(method.parameters()).device)
    # Each on its own: images may be scored by each other, and test images only by test images.
    seen = detector.score(training)
    mean, std = seen.mean(), seen.std() or 1.0
    return {name: (detector.score(pixels) - mean) / std for name, pixels in images.items()}


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
    if not resume:  # only now, so that a training that is refused leaves no folder
        check_batches(new_method(recipe), len(splits.train), engine.world)
    with ExitStack() as held:
        created = None if resume else partial(Run.create, out, recipe, overwrite=overwrite)
        refusal = engine.from_leader(lambda: _claim(run, held, created))
        if refusal is not None:
            raise refusal
        state = run.load_state() if resume else None
        return _train(run, recipe, splits, engine, monitor or Monitor(), state)


def _claim(run: Run, held: ExitStack, create: Callable[[], Run] | None) -> SquidError | None:
    """Hold the folder as its only writer. Returns the error instead of raising it, so that all
    processes can raise it."""
    try:
        held.enter_context(run.only_writer())
        if create is not None:
            create()
    except SquidError as error:
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
    recorder: Monitor = Monitor()
    if engine.leads:
        recorder = Recorder(run, splits, recipe, monitor)
        run.save_environment(describe_environment(recipe, splits, engine.device))
    try:
        detector = fit_detector(recipe, splits, engine=engine, monitor=recorder, state=state)
    except DivergedError as error:
        raise DivergedError(
            f"{error} in {run.path / 'recipe.toml'}, then go on from the last good state with: "
            f"squid train --resume {run.path}"
        ) from None
    if engine.leads:
        run.save_training_images(digests(splits.train.pixels))
        run.finish(detector.method, detector.calibration)
        run.write_model_card(_model_card(run, what_counts(detector.method)))
        run.drop_state()
    return detector


def fit_detector(
    recipe: Recipe,
    splits: Splits,
    *,
    engine: Engine,
    monitor: Monitor,
    state: State | None = None,
) -> Detector:
    """Train on the splits' training images and calibrate on held-out healthy ones."""
    method = new_method(recipe)
    augment = recipe.train.augment
    store = ImageStore(
        splits.train.pixels,
        engine.device,
        budget_bytes=_device_budget(engine.device),
        interpolation=augment.interpolation if augment else "nearest",
    )
    train(
        method, store, recipe.train, seed=recipe.seed, engine=engine, monitor=monitor, state=state
    )
    return calibrated_detector(method, recipe, splits, device=engine.device)


def new_method(recipe: Recipe) -> Method:
    """The untrained method; its first weights depend on the recipe's seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return build(recipe.method)


def _device_budget(device: torch.device) -> int | None:
    """Bytes of training images kept on the device: half of what is free on a GPU, all on a CPU."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else None


def calibrated_detector(
    method: Method, recipe: Recipe, splits: Splits, *, device: Device | torch.device = "auto"
) -> Detector:
    """A detector with a trained method, its calibration measured on healthy images only."""
    detector = Detector(method, UNCALIBRATED, recipe, device=device)
    detector.calibration = calibrate(
        detector.score(calibration_images(recipe, splits)),
        detector.score(splits.validation.normals.pixels),
        facts=image_facts(splits.validation.normals.pixels),
        source="validation normals",
    )
    if note := detector.operating_point().note:
        warnings.warn(note, CalibrationNote, stacklevel=2)
    return detector


def calibration_images(recipe: Recipe, splits: Splits) -> Tensor:
    """(n, 1, h, w) uint8: the healthy training images whose scores give mean and spread."""
    pixels = splits.train.normals.pixels[: recipe.calibration.images]
    augment = recipe.train.augment
    if not recipe.calibration.augmented or not augment:
        return pixels
    affine = augment.draw(len(pixels), torch.Generator().manual_seed(recipe.seed), "cpu")
    return transform(pixels, affine, augment.interpolation).round().to(torch.uint8)


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
        begun = Run(folder).has_state and not overwrite
        train_run(
            one, folder, engine=engine, monitor=monitor, splits=splits, resume=begun, overwrite=True
        )
    return folders


def _model_card(run: Run, counts: str) -> str:
    """What a reader of the folder must know before trusting it; `counts` is what scores look at."""
    recipe, environment, calibration = run.recipe, run.environment, run.calibration
    training, size = environment.splits["train"], recipe.method.size
    point = calibration.operating_point(recipe.false_positive_rate)
    facts = {
        "Method": f"{recipe.method.name}, {size} x {size} pixels, seed {recipe.seed}",
        "Trained on": f"{recipe.data.name}, {training.normal} healthy and "
        f"{training.anomalous} anomalous images, fingerprint {environment.data}",
        "Threshold": f"{point.threshold:.6g}: {point.meaning}. Held-out images: "
        f"{calibration.source}; no anomalous image was used.",
        **({"Counts": counts} if counts else {}),
        "Made by": f"squid {environment.version}, commit {environment.commit}, "
        f"torch {environment.torch}, {environment.device}",
    }
    lines = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
    return f"# {recipe.title or run.name}\n\n{lines}\n\n{CAUTION}"


CAUTION = """Scores hold for images like those it was trained on: another hospital, machine or age
group needs its own calibration. A standardised score of 0.5 is the average healthy image; it
is not a chance of disease. For research use only; not a medical device.
"""


def fit(
    images: Images,
    *,
    recipe: Recipe | Path | str | None = None,
    out: Path | str | None = None,
    device: Device = "auto",
) -> Detector:
    """Train on healthy images (a folder, files or an array), a tenth of them held out for the
    thresholds.

    Without a recipe the default for radiographs is trained: at 128 pixels on a GPU, at 64 on a CPU.
    Of the data section of a recipe only what says how files are read (`bits`, `damaged`, `dicom`)
    is used.
    """
    if recipe is None:
        given = default_recipe(Path("."), device)
    else:
        given = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    if isinstance(images, (str, Path)) and Path(images).is_dir():
        reading = {name: getattr(given.data, name) for name in Reading.model_fields}
        data = Folder(root=Path(images), seed=given.seed, holdout=0.1, **reading)
        given, splits = given.model_copy(update={"data": data}), data.load(given.method.size)
    else:
        splits = _own_splits(images, given)
    engine = Engine(device, precision=given.train.precision)
    if out is not None:
        return train_run(given, Path(out), engine=engine, splits=splits)
    return fit_detector(given, splits, engine=engine, monitor=Monitor())


def default_recipe(images: Path, device: Device = "auto") -> Recipe:
    """What a folder of radiographs is trained with where no recipe is given."""
    return radiograph_recipe(Folder(root=images), small=pick_device(device).type == "cpu")


def _own_splits(images: Images, recipe: Recipe) -> Splits:
    loaded = read_images(images, recipe.method.size, reading=recipe.data.reading)
    labels = np.full(len(loaded.sources), NORMAL)
    facts = read_headers([Path(source) for source in loaded.sources])
    given = ImageSet(loaded.pixels, labels, loaded.sources, patients_of(loaded.sources, facts))
    usable = np.array([not reason for reason in loaded.not_applicable], dtype=bool)
    # DICOM files of the views and body parts that the recipe asks for, by patient; others by copy.
    others = not_asked_for(facts, recipe.data.dicom)
    asked_for = np.array([not reason for reason in others], dtype=bool)
    given = given.select(asked_for & usable)
    rng = np.random.default_rng(recipe.seed)
    held = draw_groups(given.patients or digests(given.pixels), max(1, len(given) // 10), rng)
    if not held.any():
        raise DataError(
            f"None of {len(given)} images can be held out for the thresholds: patients have too "
            f"many images each; give images of more patients."
        )
    nothing = given.select([])
    warnings = unusable(loaded)
    return check(Splits(given.select(~held), given.select(held), nothing, False, warnings))
