"""Recipes: what they refuse, and that they survive being written."""

import pytest

from squid.config import override, read_toml
from squid.errors import ConfigError
from squid.recipe import Recipe, read_recipe


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        return path

    return write


START = '[data]\nname = "digitanatomy"\n[method]\nname = "squid"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (START + "slot = 3\n", r"method: unknown key 'slot'; did you mean 'slots'\?"),
        (START + "[train]\nsnapshots_every = 3\n", r"train: unknown key .* 'snapshot_every'\?"),
        (START + "[train.augment]\nshfit = 0.1\n", r"train.augment: unknown key .* 'shift'\?"),
        (START + "[train]\naugment = true\n", r"train.augment"),
        (START.replace("squid", "squib"), r"method: there is no method 'squib'; .*'squid'\?"),
        (START.replace("digitanatomy", "zhanlab"), r"data: there is no dataset .*'zhanglab'\?"),
        ('[data]\n[method]\nname = "squid"\n', r"data: the dataset has no name; known: zhanglab"),
        ('[data]\nname = "digitanatomy"\n', r"method: a value is needed"),
        (START + "grid = 3\n", r"method: size 128 cannot be cut into 3 x 3 patches"),
        (START + "epochs = 'many'\n", r"method.epochs: 'many' is no whole number"),
        (START + "epochs = 0.5\n", r"method.epochs: 0.5 is no whole number"),
        (START + "rho = 'x'\n", r"method.rho: 'x' is no number"),
        (START + "rho = 2\n", r"method.rho: 2 is too large; choose at most 1"),
        (START + "epochs = 0\n", r"method.epochs: 0 is too small; choose at least 1"),
        (START + "temperature = 0\n", r"method.temperature: 0 is too small; choose more than 0"),
        (START + "skips = 7\n", r"method.skips: 7 is neither true nor false"),
        (START + "layer = 'x'\n", r"method.layer: 'x' is not known; choose 'transformer', '"),
        (START + "preprocess = 3\n", r"method.preprocess: 3 is no list"),
        (START + "loss_weights = 3\n", r"method.loss_weights: 3 is no table"),
        (START + "generator.betas = [1]\n", r"method.generator.betas.1: a value is needed"),
        ("title = 3\n" + START, r"title: 3 is no text"),
        ("method = 3\n" + START.partition("[method]")[0], r"method: 3 is no table"),
        (START + "slots = 0x" + "f" * 9000, r"method: slots has more than 64 bits"),
        ('title = "\\u0000"\n' + START, r"title holds a null character"),
        (START + "preprocess = [0x" + "f" * 9000 + "]", r"method.preprocess.0: a huge number is"),
        (START + "slots = " + "9" * 9000, r"is not valid TOML"),
        (START + "score = 'x'\n", r"method.score: 'x' is not known; choose 'discriminator' or"),
        ("seed = [" + "[" * 50_000, r"is not valid TOML: it is nested too deeply"),
        ("seed" + ".a" * 50_000 + " = 1", r"more than 100 dots in a line"),
        ("# " + "x" * 2**20, r"more than 1 MiB"),
        ("seed" + " = {a" * 5000, r"nested too deeply"),
        (START + "[method." + "a." * 90 + "b]\n", r"method: unknown key 'a'"),
        (START + "slots = " + "[" * 300 + "]" * 300, r"slots: \[\[.*\.\.\. is no whole number"),
        ("seed = [", r"is not valid TOML"),
    ],
)
def test_mistakes_are_named(write, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_recipe(write(text))
    assert "\n" not in str(caught.value)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"There is no recipe .*none\.toml"):
        read_recipe(tmp_path / "none.toml")


def test_settings_override(write):
    recipe = read_recipe(write(START), ["method.slots=7", "train.compile=true", "title=a b"])
    assert (recipe.method.slots, recipe.train.compile, recipe.title) == (7, True, "a b")


@pytest.mark.parametrize("setting", ["method.slots", "=3", "seed.deep=1"])
def test_what_is_no_override_is_refused(setting):
    with pytest.raises(ConfigError, match=r"is not an override|is a value, not a section"):
        override({"seed": 1}, [setting])


def test_an_override_leaves_the_original_alone():
    values = {"method": {"slots": 1}}
    assert override(values, ["method.slots=2"]) == {"method": {"slots": 2}}
    assert values == {"method": {"slots": 1}}


@pytest.mark.parametrize("augment", ["false", "{ shift = 0.0 }", "{ interpolation = 'bilinear' }"])
def test_augmentation_survives_being_written(write, augment):
    recipe = read_recipe(write(START + f"[train]\naugment = {augment}\n"))
    assert bool(recipe.train.augment) is (augment != "false")
    assert read_recipe(write(recipe.to_toml())) == recipe


def test_augmentation_can_be_switched_off_and_on(write):
    recipe = read_recipe(write(START))
    off = recipe.with_settings(["train.augment=false"])
    assert (off.train.augment, bool(recipe.train.augment)) == (False, True)
    assert off.with_settings(["train.augment={}"]) == recipe


def test_every_default_is_written_out(write):
    recipe = read_recipe(write(START))
    written = read_toml(write(recipe.to_toml()))
    assert written["seed"] == 0
    assert written["method"]["slots"] == recipe.method.slots
    assert written["train"]["augment"]["shift"] == recipe.train.augment.shift
    assert Recipe.model_validate(written) == recipe


def test_a_table_that_names_some_keys_keeps_the_rest_of_the_default(write):
    text = START + "[method.generator]\nlr = 3e-4\n"
    usual, changed = read_recipe(write(START)).method, read_recipe(write(text)).method
    assert changed.generator == usual.generator.model_copy(update={"lr": 3e-4})
    by_setting = read_recipe(write(START), ["method.generator.lr=3e-4"]).method
    assert by_setting.generator == changed.generator
