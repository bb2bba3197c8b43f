"""What only SQUID has: the authors' training steps, the teacher's gradients, every ablation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from squid.config import parse
from squid.convert import discriminator_state_of, from_reference, generator_state_of
from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.methods import build
from squid.methods.base import Batch
from squid.methods.squid import Squid
from squid.methods.squid.config import SquidConfig
from squid.methods.squid.losses import distillation
from squid.train import Engine, Monitor, TrainConfig, train

SMALL = {"size": 32, "width": 4, "depth": 2, "merge_level": 1, "slots": 8, "matrix_slots": 8}
SMALL |= {"heads": 2, "discriminator_width": 2}

ABLATIONS = [
    {},
    {"space_aware": False},
    {"inpainting": "none"},
    {"inpainting": "pixel"},
    {"shrinkage": "hard"},
    {"shrinkage": "none"},
    {"shrink_of": "similarity"},
    {"shrinkage": "hard", "shrink_of": "similarity"},
    {"topk": "authors"},
    {"distillation": False},
    {"distillation_reduction": "sum"},
    {"distillation_learner": "student"},
    {"distillation_learner": "teacher"},
    {"stop_gradient": False},
    {"memory": "matrix"},
    {"shortcut": "soft", "decoder_shortcut": "soft"},
    {"shortcut": "residual", "decoder_shortcut": "residual"},
    {"shortcut": "none", "decoder_shortcut": "none"},
    {"shortcut": "straight", "decoder_shortcut": "straight"},
    {"decoder_slots": "queue"},
    {"decoder_slots": "queue", "decoder_shortcut": "deferred"},
    {"decoder_memory": "none"},
    {"decoder_memory": "patch"},
    {"decoder_memory": "patch", "space_aware": False},
    {"layer": "convolution"},
    {"layer": "standard"},
    {"location_code": False},
    {"skips": False},
    {"encoder": "pooled"},
    {"generator_loss": "saturating"},
    {"discriminator_loss": "average"},
    {"queue_update": "generator"},
    {"queue_update": "generator", "forwards": "separate"},
    {"score_statistics": "running"},
    {"score": "features"},
    {"score": ("features", "residual")},
    {"uncertainty": True, "score": "relative_residual"},
    {"grid": 1},
    {"grid": 3, "size": 48, "decoder_memory": "patch"},
]


def small(**settings) -> Squid:
    torch.manual_seed(0)
    return Squid(SquidConfig(**(SMALL | settings)))


def draw_batch(method: Squid, b: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(1)
    size = method.config.size
    noise = {
        name: torch.bernoulli(torch.full(spec.shape, spec.probability), generator=generator)
        for name, spec in method.noise(b).items()
    }
    images = torch.rand(b, 1, size, size, generator=generator)
    return Batch(images=images, index=torch.arange(b), noise=noise)


def pass_of(stage, batch: Batch, active: frozenset[str]):
    """The forward pass that the active objectives share, and their concurrent ones."""
    shared = stage.shared(batch, active) if stage.shared else {}
    for objective in stage.objectives:
        if objective.concurrent is not None and objective.name in active:
            shared = shared | objective.concurrent(batch, shared)
    return shared


def gradients(method: Squid, batch: Batch, active=frozenset({"discriminator", "generator"})):
    """One eager step without the updates: the terms and gradients of each active objective."""
    (stage,) = method.stages()
    shared = pass_of(stage, batch, active)
    for objective in stage.objectives:
        if objective.name in active:
            terms = objective.loss(batch, shared)
            total = torch.stack(list(terms.values())).sum()
            yield objective, terms, torch.autograd.grad(total, list(objective.parameters))


@pytest.mark.parametrize("settings", ABLATIONS, ids=str)
def test_every_switch_trains_all_its_parameters_and_scores(settings):
    method = small(**settings)
    batch = draw_batch(method)
    learned = []
    for objective, terms, grads in gradients(method, batch):
        assert all(torch.isfinite(term) for term in terms.values())
        assert all(torch.isfinite(grad).all() for grad in grads)
        learned += objective.parameters
        if objective.after:
            objective.after()
    assert {id(p) for p in learned} == {id(p) for p in method.parameters() if p.requires_grad}
    assert len(learned) == len(set(learned))
    method.eval()
    with torch.no_grad():
        method.finalize([draw_batch(method, 16)])
        scores = method.score(batch.images)
    assert scores.shape == (2,)
    assert torch.isfinite(scores).all()


def test_discriminator_features_score_images_unlike_healthy_ones_higher():
    method = small(score="features").eval()
    healthy = 0.5 + 0.1 * torch.rand(40, 1, 32, 32)
    with torch.no_grad():
        method.finalize([Batch(images=healthy, index=torch.arange(40), noise={})])
        scores = method.score(healthy)
        again = small(score="features").eval()
        again.restore(method.state_dict())
        assert torch.equal(again.score(healthy), scores)
        assert method.score(torch.rand(8, 1, 32, 32)).min() > scores.mean()


@pytest.mark.parametrize("statistics", ["image", "running"])
def test_score_depends_on_its_image_only_and_leaves_no_trace(statistics):
    method = small(score_statistics=statistics).eval()
    images = torch.rand(5, 1, 32, 32)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with torch.no_grad():
        together = method.score(images)
        alone = torch.cat([method.score(image[None]) for image in images])
        backwards = method.score(images.flip(0)).flip(0)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(together, backwards, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())


@pytest.mark.parametrize("stopped", [True, False])
def test_the_teacher_sends_no_gradient_to_the_encoder(stopped):
    method = small(stop_gradient=stopped)
    student = method._student_pass(draw_batch(method), "shared")
    encoder = list(method.encoder.parameters())
    loss = method._teacher_pass(student)[0].sum()
    grads = torch.autograd.grad(loss, encoder, allow_unused=True)
    assert all(grad is None for grad in grads) == stopped


def test_the_discriminator_sends_gradients_to_the_student_only():
    method = small()
    student = method._student_pass(draw_batch(method), "shared")
    logits = method.discriminator(student.reconstruction, "batch").sum()
    grads = torch.autograd.grad(logits, list(method.teacher.parameters()), allow_unused=True)
    assert all(grad is None for grad in grads)


def test_a_step_without_the_generator_runs_the_student_only():
    method = small()
    shared = method._shared(draw_batch(method), frozenset({"discriminator"}))
    assert not shared["student"].reconstruction.requires_grad
    norm = method.teacher.levels[0].enter[1]
    assert not norm.running_mean.any()


def test_masks_act_in_training_and_not_after():
    method = small(shortcut="masked", decoder_memory="none", skips=False)
    batch = draw_batch(method)
    around = replace(batch, noise={"shared.mask0": torch.zeros(8, 1, 4, 4)})
    through = replace(batch, noise={"shared.mask0": torch.ones(8, 1, 4, 4)})
    method.eval()
    expected = method.reconstruct(batch.images)
    reconstructed = method._student_pass(through, "shared").reconstruction
    torch.testing.assert_close(reconstructed, expected)
    assert not torch.equal(method._student_pass(around, "shared").reconstruction, expected)


def test_deferred_memories_are_filled_in_training_and_read_after_it():
    method = small(decoder_slots="queue", decoder_shortcut="deferred")
    images = torch.rand(2, 1, 32, 32)
    blocks = [block.memory for block in method.student.memories]
    method.train()
    reconstructed = method.reconstruct(images)
    for memory in blocks:
        memory.slots.zero_()
    torch.testing.assert_close(method.reconstruct(images), reconstructed)
    for memory in blocks:
        memory.commit()
        assert memory.slots.any()
        memory.slots.zero_()
    method.eval()
    with_memory = method.reconstruct(images)
    for memory in blocks:
        memory.slots.fill_(1.0)
    assert not torch.allclose(method.reconstruct(images), with_memory)


def test_the_discriminator_learns_the_mean_of_its_scores_over_time():
    method = small(epochs=6, target_updates=3, score_distillation_epochs=40, batch_size=4)
    before, errors = [], []

    class Watcher(Monitor):
        def epoch(self, done):
            if done.stage == "train" and done.epoch == 6:
                before.append({k: v.clone() for k, v in method.state_dict().items()})
            if done.stage == "score distillation":
                errors.append(done.losses["score_distillation.error"])

    pixels = torch.randint(0, 256, (8, 1, 32, 32), dtype=torch.uint8)
    store, engine = ImageStore(pixels, "cpu"), Engine("cpu")
    train(method, store, TrainConfig(), seed=0, engine=engine, monitor=Watcher())
    # before epochs 2, 4 and 6, and when the generator is done
    assert method.temporal_ensemble.updates == 4
    assert errors[-1] < 0.1 * errors[0]
    (state,) = before
    after_all = method.state_dict()
    changed = {name.split(".")[0] for name in state if not state[name].equal(after_all[name])}
    scoring = {"discriminator", "temporal_ensemble", "image_discriminator"}
    assert changed == scoring, "the generator is fixed, statistics and all"


def test_the_image_discriminator_adds_nothing_until_it_has_learned():
    method = small(target_updates=1).eval()
    images = torch.rand(3, 1, 32, 32)
    alone = -method.discriminator(method.reconstruct(images), "image")[:, 0]
    assert torch.equal(method.score(images), alone)
    torch.nn.init.ones_(method.image_discriminator.head.bias)
    torch.testing.assert_close(method.score(images), alone - 1)


def test_the_image_discriminator_sees_the_image():
    method = small(target_updates=1).eval()
    torch.nn.init.normal_(method.image_discriminator.head.weight)
    images = torch.rand(3, 1, 32, 32)
    with torch.no_grad():
        logits = method.discriminator(method.reconstruct(images), "image")
        logits = logits + method.image_discriminator(images, "image")
        torch.testing.assert_close(method.score(images), -logits[:, 0])


def test_score_distillation_starts_from_the_averaged_discriminator():
    method = small(epochs=2, target_updates=1, score_distillation_epochs=1).eval()
    batches = [draw_batch(method, 4)]
    method.begin(4)
    training, score_distillation = method.stages()
    with torch.no_grad():
        for bias in (1.0, 4.0):  # at the beginnings of both epochs
            method.discriminator.head.bias.fill_(bias)
            training.prepare(batches)
        method.discriminator.head.bias.fill_(9.0)
        score_distillation.prepare(batches)
    for discriminator in (method.discriminator, method.image_discriminator):
        assert discriminator.head.bias.item() == pytest.approx((1.0 + 2 * 4.0) / 3)


def test_a_matrix_is_not_deferred():
    with pytest.raises(ValueError, match="decoder_slots 'queue'"):
        SquidConfig(decoder_shortcut="deferred")


@pytest.mark.parametrize(("update", "rows"), [("step", 2), ("generator", 0)])
def test_when_the_queue_is_updated(update, rows):
    """After a step without the generator."""
    method = small(queue_update=update)
    batch = draw_batch(method)
    active = frozenset({"discriminator"})
    for objective, _terms, _grads in gradients(method, batch, active):
        if objective.after:
            objective.after()
    (stage,) = method.stages()
    if stage.after:
        stage.after()
    assert method.inpainting.memory.pointer == rows


def test_the_students_queues_take_its_features_in_every_step():
    method = small(decoder_slots="queue")
    (stage,) = method.stages()
    before = [block.memory.slots.clone() for block in method.student.memories]
    pass_of(stage, draw_batch(method), frozenset({"discriminator"}))
    stage.after()
    assert before
    for block, old in zip(method.student.memories, before, strict=True):
        changed = (block.memory.slots != old).any(-1)  # (r, n)
        assert changed.any(1).all()


def test_a_shared_memory_has_the_same_total_size():
    assert small().inpainting.memory.slots.shape == (4, 8, 64)
    assert small(space_aware=False).inpainting.memory.slots.shape == (1, 32, 64)


def test_features_and_memory_distances_have_one_value_per_position():
    method = small().eval()
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        features = method.features(images)
        assert features.shape == (2, 4, 64)
        distance = method.memory_distance(images)
        assert distance.shape == (2, 2, 2)
        assert (distance > 0).all()
        method.inpainting.memory.slots[:] = features[0][:, None]
        torch.testing.assert_close(method.memory_distance(images)[0], torch.zeros(2, 2))
    with pytest.raises(ConfigError, match="no memory"):
        small(inpainting="none").features(images)


def test_scoring_needs_no_teacher():
    method = small().eval()
    images = torch.rand(2, 1, 32, 32)
    state = {k: v for k, v in method.state_dict().items() if not k.startswith(Squid.training_only)}
    student_only = small(distillation=False).eval()
    student_only.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(student_only.score(images), method.score(images))


@pytest.mark.parametrize("settings", [{}, {"queue_update": "generator", "forwards": "separate"}])
@pytest.mark.parametrize("active", [{"discriminator"}, {"discriminator", "generator"}])
def test_a_step_can_be_compiled_as_one_graph(settings, active):
    method = small(**settings)
    batch = draw_batch(method)
    (stage,) = method.stages()

    def step(images, noise):
        inputs = Batch(images=images, index=batch.index, noise=noise)
        shared = pass_of(stage, inputs, frozenset(active))
        chosen = [o for o in stage.objectives if o.name in active]
        return [o.loss(inputs, shared) for o in chosen]

    state = {key: value.clone() for key, value in method.state_dict().items()}
    expected = step(batch.images, batch.noise)
    pending = method.inpainting.memory.pending
    method.load_state_dict(state)
    compiled = torch.compile(step, backend="eager", fullgraph=True)
    actual = compiled(batch.images, batch.noise)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(method.inpainting.memory.pending, pending)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"size": 100}, "multiple of 32"),
        ({"merge_level": 5}, "at most 4"),
        ({"grid": 3, "size": 96, "depth": 3}, "use 'patch'"),
        ({"k": 300}, "more than there are slots"),
        ({"forwards": "separate"}, "queue_update 'generator'"),
        ({"slot": 3}, "did you mean 'slots'"),
        ({"rho": 1.5}, "rho"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        parse(SquidConfig, settings, "recipe")


def test_impossible_heads_are_refused():
    with pytest.raises(ConfigError, match="3 heads"):
        build(SquidConfig(**(SMALL | {"heads": 3})))


# ------------------------------------------------------- the authors' numbers


@pytest.fixture(scope="module")
def steps(shared):
    with np.load(shared("golden", "train_steps_small_float64.npz")) as file:
        return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}


def under(case, prefix):
    return {k.removeprefix(prefix): v for k, v in case.items() if k.startswith(prefix)}


def golden_batch(steps, i):
    names = {"dpass": "discriminator", "gpass": "generator"}
    noise = {
        f"{ours}.mask{m}": steps[f"it{i}/{theirs}_mask{m}"]
        for theirs, ours in names.items()
        for m in range(3)
        if f"it{i}/{theirs}_mask{m}" in steps
    }
    images = steps[f"it{i}/x"]
    return Batch(images=images, index=torch.arange(len(images)), noise=noise)


def adam(objective):
    config = objective.optimizer
    return torch.optim.Adam(
        objective.parameters,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def test_golden_three_training_iterations(steps):
    exact = {"rtol": 1e-9, "atol": 1e-9}
    method = from_reference(under(steps, "g0/"), under(steps, "d0/")).train()
    assert isinstance(method, Squid)
    (stage,) = method.stages()
    optimizers = {objective.name: adam(objective) for objective in stage.objectives}
    names = {"student": "recon_loss", "generator": "g_loss", "teacher": "t_loss"}
    names |= {"distillation": "dist_loss", "discriminator": "d_loss"}
    ours = dict(zip(map(id, method.parameters()), dict(method.named_parameters()), strict=True))
    for i in range(3):
        batch = golden_batch(steps, i)
        for objective in stage.objectives:
            if i % objective.every:
                continue
            terms = objective.loss(batch, {})
            for name, term in terms.items():
                torch.testing.assert_close(term.detach(), steps[f"it{i}/{names[name]}"], **exact)
            total = torch.stack(list(terms.values())).sum()
            grads = torch.autograd.grad(total, list(objective.parameters))
            if i == 0 and objective.name == "generator":
                named = [ours[id(p)] for p in objective.parameters]
                check_gradients(method, steps, dict(zip(named, grads, strict=True)))
            for parameter, grad in zip(objective.parameters, grads, strict=True):
                parameter.grad = grad
            optimizers[objective.name].step()
            if objective.after:
                objective.after()
        memory = method.inpainting.memory
        torch.testing.assert_close(memory.slots[0], steps[f"it{i}/queue0"], **exact)
        assert memory.pointer == steps[f"it{i}/queue_ptr"].item()
    final = generator_state_of(under(steps, "g3/"), method.config)
    final |= discriminator_state_of(under(steps, "d3/"))
    final = {key: value for key, value in final.items() if "num_batches_tracked" not in key}
    del final["inpainting.memory.pointer"]
    state = method.state_dict()
    assert final.keys() == state.keys() - {"inpainting.memory.pointer"}
    for key, value in final.items():
        torch.testing.assert_close(state[key], value, **exact, msg=lambda m, k=key: f"{k}: {m}")


def check_gradients(method, steps, grads):
    """The authors' gradients are renamed like their state."""
    theirs = under(steps, "it0/grad/")
    state = {k: v for k, v in under(steps, "g0/").items() if k not in theirs}
    expected = generator_state_of(state | theirs, method.config)
    assert len(grads) > 150
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-9, atol=1e-9)


def test_golden_training_forward(shared):
    """In float64, because the rounding errors of two float32 computations exceed the tolerance."""
    close = {"rtol": 1e-4, "atol": 1e-5, "check_dtype": False}
    with np.load(shared("golden", "generator_small.npz")) as file:
        case = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    with np.load(shared("golden", "discriminator.npz")) as file:
        discriminator = under({key: file[key] for key in file.files}, "sd/")
    method = from_reference(under(case, "sd/"), discriminator).double().train()
    noise = {f"generator.mask{m}": case[f"train/mask{m}"] for m in range(3)}
    batch = Batch(images=case["x"].double(), index=torch.arange(3), noise=noise)
    student = method._student_pass(batch, "generator")
    torch.testing.assert_close(student.reconstruction, case["train/recon"], **close)
    image, features = method._teacher_pass(student)
    torch.testing.assert_close(image, case["train/teacher_recon"], **close)
    distance = distillation(student.features, features)
    torch.testing.assert_close(distance, case["train/dist_loss"], **close)
