"""The forms of a step are the same maths."""

import pytest
import torch

from squid.data.cache import Augment
from squid.errors import ConfigError
from squid.train import Engine
from squid.train.draws import Dice
from squid.train.step import make_step, pick_form


def losses(form, method, store, *, device="cpu", steps=6):
    """Sums of the loss terms after each step."""
    engine = Engine(device)
    method.to(engine.device).train()
    (stage,) = method.stages()
    store = type(store)(store.pixels, engine.device)
    step = make_step(form, stage, store, engine)
    dice = Dice(method, Augment(), seed=0, stage=0, images=len(store), device=engine.device)
    seen = []
    for i in range(steps):
        step(dice.draw(i // 3, i % 3, 4), tuple(i % o.every == 0 for o in stage.objectives))
        seen.append(torch.stack(list(step.totals.values())).cpu())
    return seen


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # read by the compiler itself
def test_compiled_equals_eager(make, store, monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: compile(f, backend="aot_eager", **k))
    eager = losses("eager", make(), store)
    compiled = losses("compiled", make(), store)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["compiled", "graphed"])
def test_forms_agree_on_a_gpu(make, store, form):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    eager = losses("eager", make(), store, device="cuda", steps=20)
    other = losses(form, make(), store, device="cuda", steps=20)
    for a, b in zip(eager, other, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-4)


def test_objectives_take_turns(make, store):
    method = make()
    (stage,) = method.stages()
    step = make_step("eager", stage, store, Engine("cpu"))
    dice = Dice(method, None, seed=0, stage=0, images=13, device=torch.device("cpu"))
    method.train()
    generator, discriminator = method.encoder, method.discriminator
    before = [next(m.parameters()).clone() for m in (generator, discriminator)]
    step(dice.draw(0, 0, 4), tuple(o.name == "discriminator" for o in stage.objectives))
    assert torch.equal(before[0], next(generator.parameters()))
    assert not torch.equal(before[1], next(discriminator.parameters()))


def test_auto_picks_the_fastest_form_that_works():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert pick_form("auto", cpu) == "eager"
    assert pick_form("auto", gpu) == "graphed"
    assert pick_form("auto", gpu, world=2) == "compiled"
    with pytest.raises(ConfigError, match="graphed step needs a CUDA device"):
        pick_form("graphed", cpu)
