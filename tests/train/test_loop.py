"""A training repeats itself, goes on where it stopped, and stops where it must."""

import math
from dataclasses import replace

import pytest
import torch

from squid.errors import ConfigError, DivergedError
from squid.train import Interrupted, Monitor


def weights(method):
    return {name: value.clone() for name, value in method.state_dict().items()}


def differing(a, b):
    """Names of the entries that are not bitwise equal."""
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


@pytest.fixture(scope="module")
def uninterrupted(trained):
    return weights(trained())


def test_the_same_seed_gives_the_same_weights(trained, uninterrupted):
    assert differing(weights(trained()), uninterrupted) == []


def test_another_seed_gives_other_weights(trained, make, uninterrupted):
    """The first weights are the same; the draws differ."""
    other = weights(trained(make(seed=0), seed=1))
    assert "encoder.enter.enter.0.weight" in differing(other, uninterrupted)


@pytest.mark.parametrize("step", [1, 4, 5, 6, 9])
def test_an_interrupted_training_goes_on_to_the_same_weights(
    trained, make, interrupt_at, uninterrupted, new_watcher, step
):
    """13 images in batches of 4 without the rest make 3 steps an epoch: 3, 6 and 9 are the last of
    one."""
    first, second = new_watcher(), new_watcher()
    with pytest.raises(Interrupted):
        trained(interrupt_at(make(), step), monitor=first)
    state = first.states[-1]
    assert (state["epoch"], state["step"]) == divmod(step, 3)
    resumed = trained(make(seed=5), monitor=second, state=state)
    assert differing(weights(resumed), uninterrupted) == []
    assert [e.epoch for e in first.epochs + second.epochs] == [1, 2, 3]


def test_losses_of_an_interrupted_epoch_are_whole(trained, make, interrupt_at, new_watcher):
    whole, first, second = new_watcher(), new_watcher(), new_watcher()
    trained(monitor=whole)
    with pytest.raises(Interrupted):
        trained(interrupt_at(make(), 5), monitor=first)
    trained(make(), monitor=second, state=first.states[-1])
    assert second.epochs[0].losses == pytest.approx(dict(whole.epochs[1].losses), rel=1e-12)


def test_the_state_is_loaded_weights_only(trained, watcher, tmp_path):
    trained(monitor=watcher)
    torch.save(watcher.states[-1], tmp_path / "state.pt")
    torch.load(tmp_path / "state.pt", weights_only=True)


def spoil_at(method, step):
    """A loss that is not a number from that step on."""
    stages, calls = method.stages, [0]

    def spoiled():
        (stage,) = stages()
        first, *rest = stage.objectives

        def loss(batch, shared):
            calls[0] += 1
            terms = first.loss(batch, shared)
            return {k: v * math.nan for k, v in terms.items()} if calls[0] >= step else terms

        return (replace(stage, objectives=(replace(first, loss=loss), *rest)),)

    method.stages = spoiled
    return method


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_good_state(trained, make, watcher):
    with pytest.raises(DivergedError, match=r"discriminator.* is nan in epoch 2 of 'train'"):
        trained(spoil_at(make(), 5), monitor=watcher, save_minutes=0.0)
    assert [(s["epoch"], s["step"]) for s in watcher.states] == [(1, 0)]
    assert all(torch.isfinite(v).all() for v in watcher.states[-1]["method"].values())
    assert [e.epoch for e in watcher.epochs] == [1]


def test_an_interrupt_after_a_bad_loss_saves_nothing(trained, make, interrupt_at, watcher):
    method = interrupt_at(spoil_at(make(), 4), 5)
    with pytest.raises(Interrupted):
        trained(method, monitor=watcher, save_minutes=0.0)
    assert [(s["epoch"], s["step"]) for s in watcher.states] == [(1, 0)]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"drop_last": True}, [4, 4, 4]),
        ({"drop_last": False}, [4, 4, 4, 1]),
        ({"epoch_steps": 2}, [4, 4]),
    ],
)
def test_the_batches_of_an_epoch(make, trained, settings, sizes):
    method, seen = make(epochs=1, **settings), []
    draw = method._student_pass

    def spied(batch, name):
        seen.append(len(batch.images))
        return draw(batch, name)

    method._student_pass = spied
    trained(method)
    assert seen == sizes


def test_a_stage_may_have_its_images_as_they_are(make, trained, store):
    method, moved = make(target_updates=1, score_distillation_epochs=1), {}
    draw, stages = method._student_pass, method.stages

    def look(name, batch):
        as_they_are = store.batch(batch.index)
        moved.setdefault(name, []).append(not torch.equal(batch.images, as_they_are))

    def watched():
        train, score_distillation = stages()
        (objective,) = score_distillation.objectives

        def loss(batch, shared):
            look("score distillation", batch)
            return objective.loss(batch, shared)

        return train, replace(score_distillation, objectives=(replace(objective, loss=loss),))

    method._student_pass = lambda batch, name: (look("train", batch), draw(batch, name))[1]
    method.stages = watched
    trained(method)
    assert all(moved["train"])
    assert moved["score distillation"] == [False] * 3


def test_a_training_of_two_stages_goes_on_in_the_second(make, trained, new_watcher):
    whole = weights(trained(make(target_updates=2, score_distillation_epochs=3)))
    watcher = new_watcher()
    trained(make(target_updates=2, score_distillation_epochs=3), monitor=watcher, save_minutes=0)
    state = next(s for s in watcher.states if (s["stage"], s["epoch"]) == (1, 2))
    resumed = trained(make(target_updates=2, score_distillation_epochs=3, seed=5), state=state)
    assert differing(weights(resumed), whole) == []


def test_more_images_than_a_batch_are_needed(make, trained):
    with pytest.raises(ConfigError, match=r"13 training images do not fill one batch of 14"):
        trained(make(batch_size=14))


def test_a_snapshot_scores_a_fitted_method(make, trained, store):
    """Memories and Gaussians are empty until they are fitted."""
    method, scores = make("panda"), []

    class ScoreSnapshots(Monitor):
        def snapshot(self, epoch, method):
            assert not method.training
            with torch.no_grad():
                scores.append(method.score(store.batch(torch.arange(3))))

    trained(method, monitor=ScoreSnapshots(), snapshot_every=1)
    assert len(scores) == 2
    assert all(torch.isfinite(s).all() for s in scores)
    assert not torch.equal(*scores)


@pytest.mark.parametrize("name", ["salad", "mnad", "squid"])
def test_snapshots_change_nothing(make, trained, name):
    """What `finalize` writes may be what training reads, such as SALAD's running centre."""
    with_snapshots = trained(make(name), snapshot_every=1)
    without = trained(make(name))
    assert differing(weights(with_snapshots), weights(without)) == []


def test_snapshots_come_at_their_epochs_and_at_the_end(make, trained, watcher):
    trained(make(epochs=5), monitor=watcher, snapshot_every=2)
    assert watcher.snapshots == [2, 4, 5]


def test_no_snapshot_is_taken_during_score_distillation(make, trained, watcher):
    trained(
        make(epochs=4, target_updates=2, score_distillation_epochs=3),
        monitor=watcher,
        snapshot_every=2,
    )
    assert watcher.snapshots == [2, 4]
    assert [done.stage for done in watcher.epochs] == 4 * ["train"] + 3 * ["score distillation"]


def test_short_epochs_are_short_in_every_stage(make, trained, watcher):
    trained(
        make(epochs=2, epoch_steps=1, target_updates=1, score_distillation_epochs=1),
        monitor=watcher,
    )
    assert [done.steps for done in watcher.epochs] == [1, 1, 1]


def test_snapshots_of_members_are_of_the_one_in_training(make, trained, watcher):
    method = make(epochs=3, members=2, target_updates=2, score_distillation_epochs=1)
    trained(method, monitor=watcher, snapshot_every=2)
    first, second = method.members
    assert watcher.snapshots == [2, 3, 5, 6]
    assert all(a is b for a, b in zip(watcher.shown, [first, first, second, second], strict=True))


def test_the_generator_is_updated_from_the_first_step_on(make, trained):
    method, steps = make(epochs=2, generator_every=2), [0]
    stages, updated = method.stages, []

    def counted():
        (stage,) = stages()
        discriminator, generator = stage.objectives

        def after():
            updated.append(steps[0])

        def after_step():
            stage.after()
            steps[0] += 1

        generator = replace(generator, after=after)
        return (replace(stage, objectives=(discriminator, generator), after=after_step),)

    method.stages = counted
    trained(method)
    assert updated == [0, 2, 3, 5], "every second of three steps, anew in each epoch"


def test_the_first_epoch_has_the_first_rate(make, trained, watcher):
    halved = {"lr": 8e-4, "schedule": "halving", "period": 1}
    trained(make(generator=halved), monitor=watcher, save_minutes=0.0)
    expected = [8e-4, 4e-4, 2e-4]
    assert [done.rates["generator"] for done in watcher.epochs] == pytest.approx(expected)
    used = [state["optimizers"][1]["param_groups"][0]["lr"] for state in watcher.states]
    assert used == pytest.approx(expected)


def test_an_epoch_says_what_it_came_to(trained, watcher):
    trained(monitor=watcher)
    first = watcher.epochs[0]
    assert (first.stage, first.epoch, first.epochs, first.step, first.steps) == (
        "train",
        1,
        3,
        3,
        3,
    )
    assert first.rates.keys() == {"discriminator", "generator"}
    assert {name.split(".")[0] for name in first.losses} == {"discriminator", "generator"}
    assert all(map(math.isfinite, first.losses.values()))
    assert first.images_per_second > 0
