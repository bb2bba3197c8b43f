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


@pytest.fixture
def recipe(tiny_recipe):
    return read_recipe(tiny_recipe, SETTLED)


@pytest.fixture
def stopping(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import stopping

    return stopping


def train_with(monitor, recipe, splits, out):
    train_run(recipe, out, engine=Engine("cpu"), monitor=monitor, splits=splits)
    return Detector.load(out, device="cpu")


def test_a_copy_that_stops_at_the_end_says_what_the_training_says(stopping, recipe, tmp_path):
    splits = recipe.data.load(recipe.method.size)
    stops = stopping.Stops(recipe, splits, Engine("cpu"), Run(tmp_path / "run"), 1)
    detector = train_with(stops, recipe, splits, tmp_path / "run")
    seen = detector.score(splits.train.pixels)
    said = (detector.score(splits.test.pixels) - seen.mean()) / seen.std()
    read = stops.together("test")
    assert list(read) == [4, 5]
    np.testing.assert_allclose(read[5], said, atol=1e-4)
    assert not np.allclose(read[4], said, atol=1e-4)


def test_readings_leave_the_training_as_it_is(stopping, recipe, tmp_path):
    splits = recipe.data.load(recipe.method.size)
    stops = stopping.Stops(recipe, splits, Engine("cpu"), Run(tmp_path / "read"), 1)
    read = train_with(stops, recipe, splits, tmp_path / "read")
    alone = train_with(Quiet(), recipe, splits, tmp_path / "alone")
    pixels = splits.test.pixels
    np.testing.assert_array_equal(read.score(pixels), alone.score(pixels))


def test_what_was_read_is_kept_in_the_run_folder(stopping, recipe, tmp_path):
    splits = recipe.data.load(recipe.method.size)
    make = partial(stopping.Stops, recipe, splits, Engine("cpu"), Run(tmp_path / "run"), 1)
    stops = make()
    train_with(stops, recipe, splits, tmp_path / "run")
    again = make().together("validation")
    for epoch, scores in stops.together("validation").items():
        np.testing.assert_array_equal(again[epoch], scores)
