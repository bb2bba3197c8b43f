"""One small trained run, whose files have the names of an attacker."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from squid.data.image_set import ImageSet, Splits
from squid.evaluation.evaluate import evaluate_run
from squid.recipe import Recipe, read_recipe
from squid.report import write_report
from squid.train import Engine
from squid.training import train_run

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "demo.toml"
SMALL = (
    *("seed=0", "method.grid=3", "method.depth=3", "method.merge_level=1", "method.k=5"),
    *("data.train=48", "data.validation=10", "data.test=12"),
    *("method.size=48", "method.width=4", "method.discriminator_width=4", "method.heads=2"),
    *("method.slots=20", "method.matrix_slots=20", "method.epochs=1", "method.batch_size=16"),
)


def renamed(images: ImageSet) -> ImageSet:
    names = tuple(f"<script>alert({i})</script>$x^{i}\n.png" for i in range(len(images)))
    findings = tuple(f.replace("novel", "<b>novel</b>") for f in images.findings or ())
    return replace(images, names=names, findings=findings)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return read_recipe(RECIPE, SMALL)


@pytest.fixture(scope="session")
def splits(recipe: Recipe) -> Splits:
    made = recipe.data.load(recipe.method.size)
    return replace(made, test=renamed(made.test))


@pytest.fixture(scope="session")
def trained(recipe: Recipe, splits: Splits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained, evaluated and reported on; to be left as it is."""
    run = tmp_path_factory.mktemp("runs") / "small"
    train_run(recipe, run, engine=Engine("cpu"), splits=splits)
    evaluate_run(run, device="cpu", splits=splits)
    write_report([run], device="cpu", splits=splits)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change, not reported on yet."""
    ignored = shutil.ignore_patterns("figures", "report.html")
    return Path(shutil.copytree(trained, tmp_path / "runs" / "copy", ignore=ignored))
