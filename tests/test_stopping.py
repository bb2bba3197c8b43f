"""benchmarks/stopping.py: what its readings are worth."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from squid.detector import Detector
from squid.experiments import Quiet, standardised_scores, train_run
from squid.metrics import auc
from squid.recipe import read_recipe
from squid.run import Run
from squid.train import Engine

SETTLED = ("method.epochs=5", "method.sittings=5", "method.settle_epochs=2", "method.members=2")


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


def test_a_copy_that_stops_at_the_end_says_what_the_training_says(stops, recipe, splits):
    first, second = (
        standardised_scores(member, recipe, splits.train.pixels, {"test": splits.test.pixels})
        for member in Detector.load(stops.file.parent, device="cpu").method.members
    )
    copies = stops.alone("test")
    assert [list(copy) for copy in copies] == [[4, 5], [4, 5]]
    np.testing.assert_allclose(copies[0][5], first["test"], atol=1e-4)
    assert not np.allclose(copies[0][4], first["test"], atol=1e-4)
    # The second settled with other draws than its copy, but from the same weights.
    alike = [np.corrcoef(copies[1][5], said["test"])[0, 1] for said in (first, second)]
    assert alike[1] > max(alike[0], 0.9)


def test_copies_of_all_members_score_together(stops):
    first, second = (copy[4] for copy in stops.alone("test"))
    np.testing.assert_allclose(stops.together("test")[4], (first + second) / 2)


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
    np.testing.assert_allclose(found["scores"]["5"], stops.together("test")[5], rtol=1e-5)


def test_members_are_read_alone_too(stops, splits, script):
    alone = script.read(stops, splits, "test")["auc of members"]
    assert len(alone) == 2
    assert alone[1][5] == auc(stops.alone("test")[1][5], splits.test.labels)
