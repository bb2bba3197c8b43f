"""A saved state that is whole, but of another training: refused in one sentence."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from squid.errors import RunError
from squid.recipe import read_recipe
from squid.run import Run
from squid.train import Engine, Monitor, State
from squid.training import train_run


class Stopped(Exception):
    """Raised in the middle of a training."""


class Stopper(Monitor):
    def save(self, state: State) -> None:
        raise Stopped


@pytest.fixture(scope="module")
def begun(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped once its first state was saved, after an epoch of two."""
    out = tmp_path_factory.mktemp("begun") / "run"
    recipe = read_recipe(tiny_recipe).with_settings(["train.save_minutes=0"])
    with pytest.raises(Stopped):
        train_run(recipe, out, engine=Engine("cpu"), monitor=Stopper())
    return out


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Run:
    return Run.open(Path(shutil.copytree(begun, tmp_path / "run")))


def change(run: Run, change: Callable[[Any], object]) -> None:
    state = run.load_state()
    change(state)
    torch.save(state, run.path / "resume.pt")


def shorten(optimizer: dict[str, Any]) -> None:
    moments = optimizer["state"][0]
    moments["exp_avg"] = moments["exp_avg"].flatten()[:1].repeat(2)


PLACES: list[Callable[[Any], object]] = [
    lambda state: state.update(stage=99),
    lambda state: state.update(epoch=10**9),
    lambda state: state.update(step=10**9),
    lambda state: state.update(epoch=2, step=1),
    lambda state: state.update(optimizers=[]),
]
OPTIMIZERS: list[Callable[[Any], object]] = [
    lambda state: state["optimizers"].reverse(),
    lambda state: state["optimizers"][0].update(param_groups=[]),
    lambda state: state["optimizers"][0]["state"].update({10**6: {}}),
    lambda state: state["optimizers"][0]["state"][0].pop("exp_avg"),
    lambda state: shorten(state["optimizers"][0]),
]


@pytest.mark.parametrize("changed", PLACES)
def test_a_state_of_no_place_in_the_training_is_refused(
    run: Run, changed: Callable[[Any], object]
) -> None:
    """It would else train nothing more and count as finished."""
    change(run, changed)
    with pytest.raises(RunError, match=r"saved state \(.*\) does not belong to this recipe and"):
        train_run(run.recipe, run.path, engine=Engine("cpu"), resume=True)
    assert not run.finished


@pytest.mark.parametrize("changed", OPTIMIZERS)
def test_optimisers_of_another_recipe_are_refused(
    run: Run, changed: Callable[[Any], object]
) -> None:
    change(run, changed)
    with pytest.raises(RunError, match="saved optimisers do not belong to this recipe; restore"):
        train_run(run.recipe, run.path, engine=Engine("cpu"), resume=True)


def test_the_state_as_it_was_is_gone_on_with(run: Run) -> None:
    change(run, lambda state: None)
    train_run(run.recipe, run.path, engine=Engine("cpu"), resume=True)
    assert run.finished
