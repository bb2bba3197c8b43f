"""The benchmark files in recipes/: every job has the images that it asks for, and rows that no
other test trains are trained here, on digits of a few pixels."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from squid.benchmark import plan_benchmark
from squid.benchmark.job import run_job
from squid.benchmark.timing import expected_seconds, training_images
from squid.data import ANOMALOUS, NORMAL, DataConfig, nih, rsna, zhanglab
from squid.data.digitanatomy import DigitAnatomy
from squid.data.image_set import ImageSet, Labelled
from squid.errors import DataError
from squid.evaluation.record import Result, read_record
from squid.methods import build
from squid.train import check_batches

ROOT = Path(__file__).resolve().parents[2]
RECIPES, JOBS = ROOT / "recipes", ROOT / "benchmarks/results/jobs"

# The images that jobs ask for


def labels_alone(*splits: Labelled, **_: object) -> list[np.ndarray]:
    """What takes the place of reading the files of training, validation and test."""
    return [images.labels for images in splits]


@pytest.fixture(scope="module")
def labels(shared: Callable[..., Path]) -> Callable[[DataConfig], list[np.ndarray] | None]:
    """The labels of the three splits of a dataset, None where it is not here. No file is decoded,
    and ZhangLab's arrays are read once for all of its jobs."""
    root, read_once = shared("data"), cache(zhanglab._read_npz)

    @cache
    def load(data: DataConfig) -> list[np.ndarray] | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SQUID_DATA", str(root))
            patch.setattr(zhanglab, "_read_npz", read_once)
            for module in (nih, rsna, zhanglab):
                patch.setattr(module, "read_splits", labels_alone)
            try:
                data.resolved()
            except DataError:
                return None
            found: Any = data.load(12)
        return found if isinstance(found, list) else [one.labels for _, one in found.items()]

    return load


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # a backbone's
@pytest.mark.parametrize("name", ["ablations", "benchmark", "candidates"])
def test_every_job_has_the_images_it_asks_for(
    name: str, labels: Callable[[DataConfig], list[np.ndarray] | None]
) -> None:
    checked = 0
    for job in plan_benchmark(RECIPES / f"{name}.toml", Path("nowhere"), seeds=1).jobs:
        data, found = job.recipe.data, labels(job.recipe.data)
        if found is None:
            continue
        train, *others = found
        assert len(train) == pytest.approx(training_images(data), rel=0.02), job.name
        assert np.sum(train == ANOMALOUS) == round(data.contamination * len(train)), job.name
        assert all({NORMAL, ANOMALOUS} == set(split.tolist()) for split in others), job.name
        with torch.device("meta"):  # without the numbers of the weights
            check_batches(build(job.recipe.method), len(train))
        checked += 1
    assert checked > 10


def test_a_fusion_takes_as_long_as_was_measured_or_as_its_parts() -> None:
    plan = plan_benchmark(RECIPES / "candidates.toml", Path("nowhere"), sections=["rsna_pa"])
    seconds = {job.row: expected_seconds(job) or 0.0 for job in plan.jobs}
    assert all(seconds.values())
    kept = [read_record(Result, file) for file in JOBS.glob("rsna_pa-fusion-seed-*.json")]
    measured = fmean(one.cost.training_seconds for one in kept)
    assert seconds["fusion"] == pytest.approx(measured, abs=1)
    parts = 2 * seconds["ae_u_lungs"] + seconds["squid_lesions"]
    assert seconds["squid_fusion"] == pytest.approx(parts)


# Rows at tiny size


@pytest.fixture(scope="module")
def radiographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as ZhangLab's arrays, and as those of NIH: wrong ones are anomalous."""
    root = tmp_path_factory.mktemp("radiographs")
    splits = DigitAnatomy(train=120, validation=60, test=20, contamination=0.4, noise=0.02).load(48)
    for part, images in (("train", splits.train), ("test", splits.test)):
        for kind, chosen in (("normal", images.normals), ("pneumonia", images.anomalous)):
            names = [f"{kind[0]}-{part}-{i}" for i in range(len(chosen))]
            np.savez(root / f"{part}_{kind}.npz", images=chosen.pixels[:, 0].numpy(), names=names)
    every = [splits.train, splits.validation, splits.test]
    np.savez(root / "nih_pa.npz", **as_nih(every))
    return root


def as_nih(splits: Sequence[ImageSet]) -> dict[str, Any]:
    labels = np.concatenate([images.labels for images in splits])
    return {
        "images": np.concatenate([images.pixels[:, 0].numpy() for images in splits]),
        "names": [f"{i}.png" for i in range(len(labels))],
        "labels": np.where(labels == ANOMALOUS, "Mass", "No Finding"),
        "abnormal": labels == ANOMALOUS,
        "patient": np.arange(len(labels)),
    }


SMALLER: dict[str, Any] = {
    "size": 32, "channels": (4, 8), "width": 4, "discriminator_width": 4, "hidden": 8, "latent": 4,
    "slots": 8, "matrix_slots": 8, "epochs": 2, "epoch_steps": 1, "batch_size": 4, "steps": 4,
    "encoder_steps": 2, "fit_steps": 2,
}  # fmt: skip


def smaller(settings: Any) -> Any:
    """The settings of a method that trains in a second; what a row is about stays."""
    if isinstance(settings, Mapping):
        return {key: SMALLER.get(key, smaller(value)) for key, value in settings.items()}
    return [smaller(one) for one in settings] if isinstance(settings, tuple | list) else settings


def trained(file: str, section: str, row: str, out: Path, root: Path, split: Any) -> Result:
    path = RECIPES / f"{file}.toml"
    plan = plan_benchmark(path, out, sections=[section], rows=[row], seeds=1, split=split)
    (job,) = plan.jobs
    settings = [
        f"data.root={root}",
        "data.training_normals=16",
        "train.precision=float32",
        "train.snapshot_every=1",
    ]
    recipe = job.recipe.with_settings(settings)
    method = type(recipe.method).model_validate(smaller(recipe.method.model_dump()))
    small = recipe.model_copy(update={"method": method})
    return run_job(job.model_copy(update={"recipe": small}), device="cpu")


def assert_scores_differ(result: Result) -> None:
    for evaluation in result.evaluations.by_selection.values():
        assert np.isfinite(evaluation.array).all()
        assert len(np.unique(evaluation.array)) > 1


CANDIDATES = (
    "ae_u", "synthetic_lesions", "fusion", "small", "squid_all", "squid_fine", "squid_fusion",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", CANDIDATES)
def test_candidates_are_trained_and_read_on_validation_images(
    row: str, radiographs: Path, tmp_path: Path
) -> None:
    result = trained("candidates", "nih", row, tmp_path, radiographs, "validation")
    assert result.row == row
    assert result.evaluations.split == "validation"
    assert set(result.evaluations.by_selection) <= {"final", "snapshot_mean"}
    assert_scores_differ(result)


ALTERNATIVES = (
    "memae_image_min_max", "memae_in_squid", "patch_memae_min_max", "mnad_min_max", "f_anogan_long",
    "if2d_full", "ganomaly_batch",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", ALTERNATIVES)
def test_alternatives_are_trained(row: str, radiographs: Path, tmp_path: Path) -> None:
    result = trained("benchmark", "alternatives", row, tmp_path, radiographs, "test")
    assert result.row == row
    assert set(result.evaluations.by_selection) == {"final", "best_epoch", "snapshot_mean"}
    assert_scores_differ(result)
