"""Every recipe that comes with the project."""

import tomllib
from pathlib import Path

import pytest
import torch

from squid.methods import build
from squid.recipe import read_recipe

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
RECIPES = sorted(
    path for path in FOLDER.rglob("*.toml") if "method" in tomllib.loads(path.read_text())
)


def name(path):
    return str(path.relative_to(FOLDER))


def test_there_are_recipes():
    assert {"demo.toml", "zhanglab.toml", "zhanglab-reference.toml"} <= set(map(name, RECIPES))


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_it_survives_being_written(path, tmp_path):
    recipe = read_recipe(path)
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert read_recipe(tmp_path / "again.toml") == recipe


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_its_method_is_built_and_has_a_training(path):
    recipe = read_recipe(path)
    assert recipe.title
    with torch.device("meta"):
        method = build(recipe.method)
    method.begin(1000)
    stages = method.stages()
    assert sum(stage.epochs or stage.steps for stage in stages) > 0


def test_the_reference_recipe_is_the_authors_setting():
    method = read_recipe(FOLDER / "zhanglab-reference.toml").method
    assert (method.topk, method.queue_update, method.forwards, method.drop_last) == (
        "authors",
        "generator",
        "separate",
        False,
    )
    assert (method.generator.period, method.generator.eps) == (300, 1e-7)
    assert method.discriminator.schedule == "constant"
