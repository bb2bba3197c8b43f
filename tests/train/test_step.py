"""The forms of a step are the same maths."""

from functools import partial

import pytest
import torch

from squid.data.pixels import to_unit
from squid.data.store import Augment
from squid.errors import ConfigError
from squid.train import Engine
from squid.train.sampler import Sampler
from squid.train.step import LONG, StepForm, laid_out_like, make_step, pick_form

PLAIN = StepForm(compile=False, cuda_graph=False)
COMPILED = StepForm(compile=True, cuda_graph=False)
REPLAYED = StepForm(compile=False, cuda_graph=True)
BOTH = StepForm(compile=True, cuda_graph=True)


def losses(form, method, store, *, device="cpu", precision="float32", steps=6):
    """Sums of the loss terms after each step."""
    engine = Engine(device, precision=precision)
    method.to(engine.device).train()
    (stage,) = method.stages()
    store = type(store)(store.pixels, engine.device)
    step = make_step(form, method, stage, store, engine)
    sampler = Sampler(method, Augment(), seed=0, stage=0, images=len(store), device=engine.device)
    seen = []
    for i in range(steps):
        step(sampler.draw(i // 3, i % 3, 4), tuple(i % o.every == 0 for o in stage.objectives))
        seen.append(torch.stack(list(step.totals.values())).cpu())
    return seen


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # read by the compiler itself
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bf16", 1e-2)])
def test_compiled_equals_eager(make, store, monkeypatch, precision, tolerance):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: compile(f, backend="aot_eager", **k))
    eager = losses(PLAIN, make(), store, precision=precision)
    compiled = losses(COMPILED, make(), store, precision=precision)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of compilers and drivers
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-3), ("bf16", 2e-2)])
@pytest.mark.parametrize("form", [REPLAYED, COMPILED, BOTH])
def test_forms_agree_on_a_gpu(make, store, form, precision, tolerance):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    how = {"device": "cuda", "precision": precision, "steps": 50}
    eager = losses(PLAIN, make(), store, **how)
    other = losses(form, make(), store, **how)
    for a, b in zip(eager, other, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=1e-4)


def test_bf16_weights_are_what_autocast_would_compute_with(make, store, monkeypatch):
    worked, cast = make(), make()
    copies = losses(PLAIN, worked, store, precision="bf16")
    monkeypatch.setattr("squid.train.step.Bf16Weights", lambda method: None)
    plain = losses(PLAIN, cast, store, precision="bf16")
    for a, b in zip(copies, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)
    for name, value in worked.state_dict().items():
        torch.testing.assert_close(value, cast.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_a_bf16_training_leaves_the_weights_it_computed_with(trained, store, watcher):
    with_digits, without = trained(precision="bf16", monitor=watcher), trained(precision="bf16")
    with_digits.restore(watcher.states[-1]["method"])
    conv, linear = without.encoder.enter.enter[0].weight, without.inpainting.layer.mix.query.weight
    for weight in (conv, linear):
        assert torch.equal(weight, weight.bfloat16().float())
    assert not torch.equal(conv, with_digits.encoder.enter.enter[0].weight)
    images = to_unit(store.pixels[:4])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = with_digits.eval().reconstruct(images)
        torch.testing.assert_close(without.reconstruct(images), expected, rtol=0, atol=0)


def test_a_step_works_with_weights_that_were_changed_between_epochs(make, store):
    method = make()
    engine = Engine("cpu", precision="bf16")
    (stage,) = method.train().stages()
    step = make_step(PLAIN, method, stage, store, engine)
    conv = method.encoder.enter.enter[0]
    with torch.no_grad():
        conv.weight.fill_(0.5)
    step.begin_epoch({})
    with step.bf16_weights.swapped_in():
        assert conv.weight.dtype == torch.bfloat16
        assert (conv.weight == 0.5).all()
    assert conv.weight.dtype == torch.float32


def test_gradients_are_laid_out_like_their_weights():
    """Fused optimisers on a GPU refuse others."""
    weight = torch.zeros(8, 3, 5, 5).to(memory_format=torch.channels_last)
    gradient = torch.rand(8, 3, 5, 5)
    laid_out = laid_out_like(weight, gradient)
    assert laid_out.stride() == weight.stride() != gradient.stride()
    assert torch.equal(laid_out, gradient)
    assert laid_out_like(laid_out, laid_out) is laid_out  # no copy where none is needed


def test_objectives_take_turns(make, store):
    method = make()
    (stage,) = method.stages()
    step = make_step(PLAIN, method, stage, store, Engine("cpu"))
    sampler = Sampler(method, None, seed=0, stage=0, images=13, device=torch.device("cpu"))
    method.train()
    generator, discriminator = method.encoder, method.discriminator
    before = [next(m.parameters()).clone() for m in (generator, discriminator)]
    step(sampler.draw(0, 0, 4), tuple(o.name == "discriminator" for o in stage.objectives))
    assert torch.equal(before[0], next(generator.parameters()))
    assert not torch.equal(before[1], next(discriminator.parameters()))


def test_auto_picks_the_fastest_form_that_works():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    auto = partial(pick_form, "auto", "auto")
    assert auto(cpu, steps=LONG) == PLAIN
    assert auto(gpu, steps=LONG) == BOTH
    assert auto(gpu, steps=LONG - 1) == REPLAYED
    assert auto(gpu, steps=LONG, world=2) == COMPILED
    assert auto(gpu, steps=LONG, on_device=False) == COMPILED
    assert auto(gpu, steps=LONG - 1, world=2) == PLAIN


@pytest.mark.parametrize("compile", [False, True])
def test_a_replayed_step_needs_one_gpu_that_holds_the_images(compile):
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        pick_form(compile, True, torch.device("cpu"), steps=1)
    for lacking in ({"on_device": False}, {"world": 2}):
        with pytest.raises(ConfigError, match="one GPU that holds all images"):
            pick_form(compile, True, torch.device("cuda"), steps=1, **lacking)
