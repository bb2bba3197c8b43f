"""The run folder: history, snapshots of a resumed training, weights, and what it refuses."""

import dataclasses
import pickle
import resource
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from squid.errors import RunError
from squid.recipe import read_recipe
from squid.run import Run
from squid.run.history import DamagedHistoryWarning
from squid.run.states import OlderStateWarning
from squid.train import Epoch
from squid.training import new_method

SCORES = {"epochs": np.array([1, 2]), "validation": np.ones((2, 2)), "test": np.ones((2, 3))}


@pytest.fixture
def recipe(tiny_recipe):
    return read_recipe(tiny_recipe)


def epoch(number, stage="train", **losses):
    losses = {f"net.{name}": value for name, value in losses.items()}
    rates = {"net": 1e-4 / number}
    return Epoch(stage, number, 9, 3, 3, losses or {"net.loss": 1 / number}, rates, 0.5, 100.0)


def places(run):
    return [(row["stage"], int(row["epoch"])) for row in run.history]


def test_history_has_a_row_for_each_epoch(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    for number in (1, 2, 3):
        run.add_history(epoch(number))
    columns = ["stage", "epoch", "rate.net", "net.loss", "seconds", "images_per_second"]
    assert list(run.history[0]) == columns
    assert places(run) == [("train", 1), ("train", 2), ("train", 3)]
    assert float(run.history[1]["net.loss"]) == 0.5


def test_another_stage_widens_the_table(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    run.add_history(epoch(1, loss=1.0))
    run.add_history(epoch(1, "second", code=2.0))
    first, second = run.history
    assert (first["net.loss"], first["net.code"]) == ("1.0", "")
    assert (second["net.loss"], second["net.code"]) == ("", "2.0")


def test_a_resumed_run_writes_the_epochs_since_its_state_anew(recipe, tmp_path):
    """A machine may fail minutes after the last state was saved."""
    path = tmp_path / "run"
    first = Run.create(path, recipe)
    for number in (1, 2, 3, 4):
        first.add_history(epoch(number))
    again = Run.open(path)
    for number in (3, 4, 5):
        again.add_history(epoch(number, loss=7.0))
    assert places(again) == [("train", n) for n in (1, 2, 3, 4, 5)]
    assert [row["net.loss"] for row in again.history][2:] == ["7.0"] * 3


def test_a_run_is_not_overwritten_unasked(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    (run.path / "notes.txt").write_text("mine")
    run.add_history(epoch(1))
    with pytest.raises(RunError, match=r"already holds a run; .*--overwrite .*--resume"):
        Run.create(run.path, recipe)
    Run.create(run.path, recipe, overwrite=True)
    assert run.history == []
    assert (run.path / "notes.txt").read_text() == "mine"


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no recipe\.toml"):
        Run.open(tmp_path)


def test_a_begun_run_has_no_model_yet(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    assert not run.finished
    with pytest.raises(RunError, match="is not trained yet; finish it with --resume"):
        run.load_method()
    with pytest.raises(RunError, match=r"has no calibration\.json: its training is not finished"):
        _ = run.calibration


def test_weights_come_back_and_the_teacher_stays_apart(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    method = new_method(recipe)
    run.save_method(method)
    assert (run.path / "training.safetensors").is_file()
    loaded = run.load_method()
    state, found = method.state_dict(), loaded.state_dict()
    needed = [name for name in state if not name.startswith(method.training_only)]
    assert all(torch.equal(state[name], found[name]) for name in needed)
    assert not loaded.training


def test_what_half_precision_holds_takes_half_the_space(recipe, tmp_path):
    """The features in a memory, after a bf16 training; weights keep every digit."""
    run, method = Run.create(tmp_path / "run", recipe), new_method(recipe)
    run.save_method(method)
    before = (run.path / "model.safetensors").stat().st_size
    slots = method.inpainting.memory.slots
    slots.copy_(slots.bfloat16())
    run.save_method(method)
    after = (run.path / "model.safetensors").stat().st_size
    assert before - after == pytest.approx(slots.nbytes / 2, abs=64)
    loaded = run.load_method().inpainting.memory.slots
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded, slots)


@pytest.mark.parametrize("setting", ["method.inpainting=none", "method.width=8"])
def test_weights_of_another_recipe_are_refused(recipe, tmp_path, setting):
    run = Run.create(tmp_path / "run", recipe)
    run.save_method(new_method(recipe))
    other = recipe.with_settings([setting])
    (run.path / "recipe.toml").write_text(other.to_toml())
    with pytest.raises(RunError, match="The weights do not belong to this recipe"):
        run.load_method()


def test_a_missing_weight_is_refused(recipe, tmp_path):
    """It would keep its random first value. Only what scoring does not need may be missing."""
    run = Run.create(tmp_path / "run", recipe)
    run.save_method(new_method(recipe))
    (run.path / "training.safetensors").unlink()
    run.load_method()
    weights = load_file(run.path / "model.safetensors")
    del weights["encoder.enter.enter.0.weight"]
    save_file(weights, run.path / "model.safetensors")
    with pytest.raises(RunError, match=r"'encoder\.enter\.enter\.0\.weight' does not match"):
        run.load_method()


def test_a_state_comes_back_and_can_be_dropped(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    assert run.load_state() is None
    run.save_state(state(2))
    assert run.load_state()["method"]["w"].tolist() == [0, 1, 2]
    run.drop_state()
    assert run.load_state() is None
    assert not run.has_state


def state(epoch):
    parts = {"stage": 0, "epoch": epoch, "step": 0, "totals": {}, "optimizers": []}
    return {**parts, "method": {"w": torch.arange(3)}}


@pytest.mark.parametrize("damage", [b"", b"junk" * 99, b"PK\x03\x04", None])
def test_a_damaged_state_gives_way_to_the_one_before(recipe, tmp_path, damage):
    """An empty one is what a power cut leaves on some file systems; `None` is a kill between."""
    run = Run.create(tmp_path / "run", recipe)
    run.save_state(state(1))
    run.save_state(state(2))
    last = run.path / "resume.pt"
    whole = last.read_bytes()
    if damage is None:
        last.unlink()
        assert run.load_state()["epoch"] == 1
        return
    for torn in (damage, whole[: len(whole) // 2]):
        last.write_bytes(torn)
        with pytest.warns(OlderStateWarning, match="goes on from the state before it"):
            assert run.load_state()["epoch"] == 1


NAN = float("nan")
ADAM = {"state": {0: {"step": torch.ones(())}}, "param_groups": [{"params": [0]}]}
WRONG = {
    "stage": [None, -1, 1.0, True, "0"],
    "epoch": [None, -1, torch.ones(())],
    "step": [None, -5, [1]],
    "totals": [None, [], {"loss": None}, {"loss": NAN}, {"loss": torch.ones(())}],
    "method": [None, [], {"w": None}, {"w": 1.0}, {"w": torch.tensor([NAN])}],
    "optimizers": [
        None, {}, [None], [{}], [{**ADAM, "state": None}], [{**ADAM, "param_groups": None}],
        [{**ADAM, "param_groups": [{}]}], [{**ADAM, "param_groups": [{"params": 3}]}],
        [{**ADAM, "state": {0: None}}], [{**ADAM, "state": {0: {"step": 1}}}],
        [{**ADAM, "state": {0: {"step": torch.tensor(NAN)}}}],
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_so_does_one_with_contents_that_no_training_leaves(recipe, tmp_path, name):
    run = Run.create(tmp_path / "run", recipe)
    run.save_state({**state(1), "optimizers": [ADAM]})
    run.save_state(state(2))
    for value in WRONG[name]:
        torch.save(state(2) | {name: value}, run.path / "resume.pt")
        with pytest.warns(OlderStateWarning, match="goes on from the state before it"):
            assert run.load_state()["epoch"] == 1


def test_what_torch_says_of_a_strange_pickle_is_not_passed_on(recipe, tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", recipe)
    run.save_state(state(1))
    usual = torch.load

    def load(*words, **options):
        warnings.warn("Detected a strange pickle", stacklevel=2)
        return usual(*words, **options)

    monkeypatch.setattr(torch, "load", load)
    assert run.load_state()["epoch"] == 1


def test_no_state_that_is_whole_is_one_sentence(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    for other in ({"epoch": 1}, [1, 2]):
        torch.save(other, run.path / "resume.pt")
        with pytest.raises(RunError, match="is damaged, and there is no state before it; train"):
            run.load_state()


def test_a_full_disk_leaves_the_state_before(recipe, tmp_path):
    """A limit on the size of files is a disk that is full, for whoever writes."""
    run = Run.create(tmp_path / "run", recipe)
    run.save_state(state(1))
    there = {path.name: path.read_bytes() for path in run.path.iterdir()}
    large = {**state(2), "method": {"w": torch.zeros(10**6)}}
    for write in (lambda: run.save_state(large), lambda: run.save_method(new_method(recipe))):
        with no_room(50_000), pytest.raises(OSError, match="No space left on device"):
            write()
        assert {path.name: path.read_bytes() for path in run.path.iterdir()} == there
    assert run.load_state()["epoch"] == 1


@contextmanager
def no_room(largest):
    """No file gets larger than so many bytes."""
    usual, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (usual, hard))


def test_a_pickle_in_a_state_is_not_run(recipe, tmp_path):
    class Payload:
        def __reduce__(self):
            return (tmp_path / "owned").touch, ()

    run = Run.create(tmp_path / "run", recipe)
    with (run.path / "resume.pt").open("wb") as file:
        pickle.dump(Payload(), file)
    with pytest.raises(RunError, match="is damaged"):
        run.load_state()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("cut", ["train,3,0.0001,0.", "train", "\xff\xfe\0", 'train,"3'])
def test_a_history_that_is_cut_keeps_its_whole_lines(recipe, tmp_path, cut):
    run = Run.create(tmp_path / "run", recipe)
    for number in (1, 2):
        run.add_history(epoch(number))
    with (run.path / "history.csv").open("ab") as file:
        file.write(cut.encode("latin-1"))
    again = Run.open(run.path)
    with pytest.warns(DamagedHistoryWarning, match="is damaged in line 4; the rest is left out"):
        assert places(again) == [("train", 1), ("train", 2)]
    with pytest.warns(DamagedHistoryWarning):
        again.add_history(epoch(3))
    assert places(again) == [("train", 1), ("train", 2), ("train", 3)]


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff\0\n1,2\n", b"stage,epoch\ntrain,1\n"])
def test_a_history_without_its_columns_is_reported(recipe, tmp_path, content):
    run = Run.create(tmp_path / "run", recipe)
    (run.path / "history.csv").write_bytes(content)
    with pytest.warns(DamagedHistoryWarning, match=r"history\.csv is damaged in line 1"):
        assert run.history == []


def test_a_history_writes_to_no_planted_link(recipe, tmp_path):
    run, victim = Run.create(tmp_path / "run", recipe), tmp_path / "victim"
    victim.write_text("precious\n")
    (run.path / "history.csv").symlink_to(victim)
    with pytest.warns(DamagedHistoryWarning, match="in line 1"):
        run.add_history(epoch(1))
    assert victim.read_text() == "precious\n"
    assert places(run) == [("train", 1)]


def test_snapshots_come_back(recipe, tmp_path):
    run = Run.create(tmp_path / "run", recipe)
    assert run.snapshots is None
    run.save_snapshots(SCORES)
    assert run.snapshots["test"].shape == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: np.savez(path, epochs=np.array([1]), test=np.ones((1, 3))),
        lambda path: np.savez(path, **SCORES | {"test": np.full((2, 3), np.nan)}),
        lambda path: np.savez(path, **SCORES | {"test": np.ones((3, 3))}),
        lambda path: np.savez(path, **SCORES | {"test": np.array([[None]])}),
    ],
)
def test_damaged_snapshots_are_one_sentence(recipe, tmp_path, change):
    run = Run.create(tmp_path / "run", recipe)
    run.save_snapshots(SCORES)
    change(run.path / "snapshots.npz")
    with pytest.raises(RunError, match=r"snapshots\.npz is damaged; remove it to go on"):
        _ = run.snapshots


def test_dataclass_of_an_epoch_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        epoch(1).epoch = 2
