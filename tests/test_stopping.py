"""benchmarks/stopping.py: what its readings are worth."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from squid.detector import Detector
from squid.experiments import Quiet, train_run
from squid.recipe import read_recipe
from squid.run import Run
from squid.train import Engine

SETTLED = ("method.epochs=5", "method.sittings=5", "method.settle_epochs=2")


@pytest.fixture(scope="module")
def recipe(tiny_recipe):
    return read_recipe(tiny_recipe, SETTLED)


@pytest.fixture(scope="module")
def splits(recipe):
    return recipe.data.load(recipe.method.size)


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
        import stopping
    return stopping


@pytest.fixture(scope="module")
def new_stops(script, recipe, splits, tmp_path_factory):
    """Of one run folder."""
    folder = tmp_path_factory.mktemp("stopping") / "run"
    return partial(script.Stops, recipe, splits, Engine("cpu"), Run(folder), 1)


@pytest.fixture(scope="module")
def stops(new_stops, recipe, splits):
    """Of a training that is done."""
    stops = new_stops()
    train_run(recipe, stops.file.parent, engine=Engine("cpu"), monitor=stops, splits=splits)
    return stops


def scores(run, pixels):
    return Detector.load(run, device="cpu").score(pixels)


def test_a_copy_that_stops_at_the_end_says_what_the_training_says(stops, splits):
    seen = scores(stops.file.parent, splits.train.pixels)
    said = (scores(stops.file.parent, splits.test.pixels) - seen.mean()) / seen.std()
    read = stops.together("test")
    assert list(read) == [4, 5]
    np.testing.assert_allclose(read[5], said, atol=1e-4)
    assert not np.allclose(read[4], said, atol=1e-4)


def test_readings_leave_the_training_as_it_is(stops, recipe, splits, tmp_path):
    train_run(recipe, tmp_path / "alone", engine=Engine("cpu"), monitor=Quiet(), splits=splits)
    pixels = splits.test.pixels
    np.testing.assert_array_equal(
        scores(stops.file.parent, pixels), scores(tmp_path / "alone", pixels)
    )


def test_what_was_read_is_kept_in_the_run_folder(stops, new_stops):
    again = new_stops().together("validation")
    for epoch, said in stops.together("validation").items():
        np.testing.assert_array_equal(again[epoch], said)


def test_what_is_written_can_be_put_together_with_others(stops, splits, script):
    found = script.read(stops, splits, "test")
    assert found["scores"]["label"] == splits.test.labels.tolist()
    assert [int(name) for name in found["scores"] if name != "label"] == list(found["auc"])
    np.testing.assert_allclose(found["scores"]["5"], stops.together("test")[5], atol=1e-4)
