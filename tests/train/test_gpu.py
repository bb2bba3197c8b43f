"""What only a GPU can show: CUDA graphs among snapshots and interruptions, scoring that is
compiled, replayed or done by several members at once."""

from functools import partial

import numpy as np
import pytest
import torch

from squid.calibration import UNCALIBRATED
from squid.data.digitanatomy import DigitAnatomy
from squid.detector import Detector
from squid.inference.torch import capture
from squid.recipe import Recipe
from squid.train import Engine, TrainConfig, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # of compilers and drivers
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def detector(method, **options):
    recipe = Recipe(data=DigitAnatomy(), method=method.config)
    return Detector(method, UNCALIBRATED, recipe, device="cuda", **options)


def train_with_graph(method, store, watcher, *, state=None, **config):
    train(
        method,
        type(store)(store.pixels, "cuda"),
        TrainConfig(compile=False, **config),
        seed=0,
        engine=Engine("cuda"),
        monitor=watcher,
        state=state,
    )
    return method


def test_snapshots_do_not_disturb_cuda_graphs(make, store, new_watcher):
    class Scoring(new_watcher):
        def snapshot(self, epoch, method):
            detector(watched).score(store.pixels)

    watched, alone = make(epochs=8), make(epochs=8)
    scoring, quiet = Scoring(), new_watcher()
    train_with_graph(watched, store, scoring, snapshot_every=1)
    train_with_graph(alone, store, quiet)
    for a, b in zip(scoring.epochs, quiet.epochs, strict=True):
        for name, value in a.losses.items():
            assert value == pytest.approx(b.losses[name], rel=5e-3, abs=1e-4)


def test_a_training_with_cuda_graphs_goes_on_where_it_was(make, store, new_watcher):
    whole, before, after = new_watcher(), new_watcher(), new_watcher()
    train_with_graph(make(epochs=8), store, whole)
    train_with_graph(make(epochs=8), store, before, save_minutes=0)
    state = before.states[4]
    train_with_graph(make(epochs=8), store, after, state=state)
    assert len(after.epochs) == 8 - state["epoch"]
    for a, b in zip(whole.epochs[state["epoch"] :], after.epochs, strict=True):
        for name, value in a.losses.items():
            assert value == pytest.approx(b.losses[name], rel=5e-3, abs=1e-4)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("count", [1, 3, 256])
def test_replayed_scoring_equals_eager(make, monkeypatch, compile, count):
    first, second = torch.randint(0, 256, (2, count, 1, 32, 32), dtype=torch.uint8)
    method = make().eval()
    eager = [detector(method).score(pixels) for pixels in (first, second)]
    monkeypatch.setattr("squid.inference.torch.REPLAY_AFTER", 0)
    replaying = detector(method, compile=compile)
    replayed = [replaying.score(pixels) for pixels in (first, second)]
    assert replaying._backend._replay is not None
    np.testing.assert_allclose(replayed, eager, rtol=1e-3, atol=1e-4)


def test_members_score_at_once_what_they_score_alone(make):
    method = make(members=3, target_updates=1).to("cuda").eval()
    images, others = torch.rand(2, 16, 1, 32, 32, device="cuda")
    with torch.no_grad():
        alone = [torch.stack([m.score(i) for m in method.members], 1) for i in (images, others)]
        torch.testing.assert_close(method._scores(images), alone[0])
        graph, found = capture(partial(method._scores, images))
        images.copy_(others)
        graph.replay()
    torch.testing.assert_close(found, alone[1])
