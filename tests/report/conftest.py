"""One small trained run, whose files have the names of an attacker, and a real browser."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squid.data.digitanatomy import DigitAnatomy
from squid.data.image_set import ImageSet, Splits
from squid.evaluation.evaluate import evaluate_run
from squid.recipe import Recipe, read_recipe
from squid.report import write_report
from squid.train import Engine
from squid.training import train_run

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

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


@contextmanager
def hostile_names() -> Iterator[None]:
    """The test images of every data set that is read meanwhile have an attacker's names."""
    load = DigitAnatomy.load

    def load_renamed(data: DigitAnatomy, size: int) -> Splits:
        splits = load(data, size)
        return replace(splits, test=renamed(splits.test))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DigitAnatomy, "load", load_renamed)
        yield


@pytest.fixture
def hostile() -> Callable[[], AbstractContextManager[None]]:
    return hostile_names


@pytest.fixture(scope="session")
def trained(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained, evaluated and reported on; to be left as it is."""
    run = tmp_path_factory.mktemp("runs") / "small"
    with hostile_names():
        train_run(recipe, run, engine=Engine("cpu"))
        evaluate_run(run, device="cpu")
        write_report([run], device="cpu")
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change, not reported on yet."""
    ignored = shutil.ignore_patterns("figures", "report.html")
    return Path(shutil.copytree(trained, tmp_path / "runs" / "copy", ignore=ignored))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium without a window; it logs errors, and each request it makes."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()
