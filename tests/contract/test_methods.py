"""What every method must do. A new line in METHODS is covered here without a new test; where
EVERYWHERE does not make it small enough, it adds its own settings to SMALL."""

import copy
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from squid.config import Precision
from squid.data.store import ImageStore
from squid.evaluation.metrics import auc
from squid.inference.torch import TorchBackend
from squid.methods import METHODS, build
from squid.methods.base import Batch, Method, Stage
from squid.places import weights_candidates
from squid.train import Engine, Monitor, TrainConfig, train
from squid.train.sampler import Sampler
from squid.train.step import Step

SIZE, BLOCK = 32, 10
TRAIN, TEST = 64, 24
BRIGHT = 0.7
"""Above every normal pixel, yet near mid-gray, which an untrained network outputs everywhere."""
STRENGTHS = (0.25, 0.5, 1.0)
"""The graded task: how far the block is from the stripes to BRIGHT."""
MOST_STEPS = 200
"""Most steps of a training in these tests."""
TWO, LESIONS = "two members", "squid with lesions"
VARIANTS: dict[str, dict[str, Any]] = {
    TWO: {"members": 2},
    LESIONS: {
        "target_updates": 0, "uncertainty": True, "score": ("relative_residual", "lesions"),
        "lesions": {
            "channels": (8, 16, 16), "epochs": 20, "batch_size": 16, "optimizer": {"lr": 2e-3},
        },
    },
}  # fmt: skip
"""More settings of SQUID, tested like methods."""

EVERYWHERE: dict[str, Any] = {
    "size": SIZE, "batch_size": 16, "epochs": 20, "steps": 80, "width": 8, "hidden": 64,
}  # fmt: skip
"""Settings for each method that has a field of that name."""

QUICK = {"lr": 2e-3}
QUICK_GAN = {"lr": 1e-3, "betas": (0.5, 0.999)}
SMALL: dict[str, dict[str, Any]] = {
    "auto_encoder": {"channels": (8, 16, 16), "latent": 8, "optimizer": QUICK},
    "vae": {"channels": (8, 16, 16), "latent": 8, "optimizer": QUICK},
    "ganomaly": {"epochs": 40},
    "f_anogan": {
        "width": 4, "steps": 60, "encoder_steps": 60, "encoder_optimizer": {"lr": 5e-4},
    },
    "memae": {"channels": (8, 16, 16), "slots": 50, "threshold": 0.02, "optimizer": QUICK},
    "mnad": {"channels": (8, 16, 16, 32), "epochs": 10, "optimizer": QUICK},
    "salad": {"epochs": 8},
    "panda": {"epochs": 2},
    "mkd": {"epochs": 6},
    "if2d": {
        "classes": 8, "latent": 16, "layers": 4, "again": 2, "frequencies": 2, "points": 512,
        "fit_steps": 30, "fit_points": 512, "fit_lr": 3e-2,
        "optimizer": {"lr": 5e-3}, "code_optimizer": {"lr": 3e-2},
    },
    "igd": {"epochs": 4},
    "ae_u": {"channels": (8, 16, 16), "latent": 8, "optimizer": QUICK},
    "synthetic_lesions": {"channels": (8, 16, 16), "optimizer": QUICK},
    "fusion": {
        "parts": [
            {"name": "ae_u", "channels": (8, 16, 16), "latent": 8, "hidden": 64, "batch_size": 16,
             "smooth": 0.05, "brighter": True, "region": "lungs",
             "epochs": 20, "optimizer": QUICK, "preprocess": ["standardise"]},
            {"name": "synthetic_lesions", "channels": (8, 16, 16), "batch_size": 16, "epochs": 20,
             "optimizer": QUICK, "region": "lungs"},
        ],
    },
    "patch_memae": {"channels": (8, 16), "slots": 50, "threshold": 0.02, "optimizer": QUICK},
    "squid": {
        "depth": 3, "slots": 16, "matrix_slots": 16, "heads": 2, "discriminator_width": 8,
        "generator": QUICK_GAN, "discriminator": QUICK_GAN,
        "target_updates": 20, "score_distillation_epochs": 5,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """Soft stripes of varying phase; anomalous images have a block somewhere, bright or fainter."""

    train: Tensor  # (n, 1, h, w) uint8
    normal: Tensor  # (n, 1, h, w) in [0, 1]
    clean: Tensor  # (n, 1, h, w) in [0, 1], the anomalous images without their block
    planted: Tensor  # (n, h, w) bool

    @property
    def anomalous(self) -> Tensor:
        return self.graded(1.0)

    def graded(self, strength: float) -> Tensor:
        """The anomalous images with a block that shows as much of the stripes as it lacks."""
        return self.clean.lerp(torch.tensor(BRIGHT), strength * self.planted[:, None])

    @property
    def mixed(self) -> Tensor:
        return torch.cat((self.normal[:3], self.anomalous[:3]))


@pytest.fixture(scope="module")
def task() -> Task:
    generator = torch.Generator().manual_seed(0)
    train, normal, clean = (stripes(n, generator) for n in (TRAIN, TEST, TEST))
    corner = torch.randint(0, SIZE - BLOCK, (TEST, 2), generator=generator)
    place = torch.arange(SIZE)
    inside = (place >= corner[..., None]) & (place < corner[..., None] + BLOCK)  # (n, 2, side)
    planted = inside[:, 0, :, None] & inside[:, 1, None, :]
    return Task((train * 255).to(torch.uint8), normal, clean, planted)


def stripes(n: int, generator: torch.Generator) -> Tensor:
    """(n, 1, h, w) between 0.1 and 0.5."""
    place = torch.linspace(0.0, 1.0, SIZE)
    phase, gain = torch.rand(2, n, 1, 1, 1, generator=generator)
    waves = torch.sin(6.0 * (place[:, None] + 0.5 * place) + 2.0 * phase)
    return 0.3 + (0.1 + 0.1 * gain) * waves


@pytest.fixture(scope="module", params=[*METHODS, *VARIANTS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def small(name: str) -> Method:
    """The method at a size that trains in seconds, with its weights fixed."""
    variant = VARIANTS.get(name, {})
    name = "squid" if variant else name
    fields = METHODS[name].Config.model_fields
    settings = {key: value for key, value in EVERYWHERE.items() if key in fields}
    if "backbone" in fields:
        settings["backbone"] = {"weights": backbone_weights()}
    settings |= SMALL.get(name, {})
    torch.manual_seed(0)
    return build(METHODS[name].Config.model_validate(settings | variant))


def backbone_weights() -> str:
    """The shared VGG16 where it is here; a random one must do without."""
    places = weights_candidates("vgg16_features_imagenet_fp16.safetensors")
    return next((str(path) for path in places if path.is_file()), "random")


@pytest.fixture(scope="module")
def fitted(name: str, task: Task) -> Method:
    method = small(name)
    assert steps(method) <= MOST_STEPS, f"give {name} a shorter training in SMALL"
    store, config = ImageStore(task.train, "cpu"), TrainConfig(augment=False)
    train(method, store, config, seed=0, engine=Engine("cpu"), monitor=Monitor())
    return method


def steps(method: Method) -> int:
    """How many training takes, by a copy, because `begin` may size a method to its data."""
    trial = copy.deepcopy(method)
    trial.begin(TRAIN)
    return sum(s.steps or s.epochs_over(TRAIN) * s.steps_per_epoch(TRAIN) for s in trial.stages())


@pytest.fixture
def method(fitted: Method) -> Iterator[Method]:
    with torch.no_grad():
        yield fitted


# -------------------------------------------------------------------- training


@pytest.mark.parametrize("name", METHODS)
def test_builds_from_defaults(name: str) -> None:
    config = METHODS[name].Config()
    with torch.device("meta"):
        method = build(config)
    assert isinstance(method, METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_has_a_name_a_title_and_a_paper(name: str) -> None:
    method = METHODS[name]
    assert method.Config().name == name
    assert method.title
    assert re.search(r", .*\b(19|20)\d\d\b.*, (arXiv|doi):\S+$", method.paper)


def test_titles_are_unique() -> None:
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


def test_stages_are_well_formed(name: str) -> None:
    for stage in begun(name).stages():
        assert (stage.epochs is None) != (stage.steps is None)
        listed = [id(p) for objective in stage.objectives for p in objective.parameters]
        assert len(listed) == len(set(listed)), "two objectives of a stage move one parameter"
        names = [objective.name for objective in stage.objectives]
        assert len(names) == len(set(names))


def test_noise_runs_over_images(name: str) -> None:
    """Ranks can then share it."""
    method = begun(name)
    for key, spec in method.noise(2).items():
        doubled = method.noise(4)[key]
        assert spec.shape[0] % 2 == 0
        assert doubled.shape == (2 * spec.shape[0], *spec.shape[1:])


def test_an_update_is_finite_pure_and_moves_its_parameters_only(name: str, task: Task) -> None:
    for number, stage in enumerate(begun(name).stages()):
        for chosen in range(len(stage.objectives)):
            check_update(name, task, number, chosen)


def check_update(name: str, task: Task, number: int, chosen: int) -> None:
    first, again = (Update(name, task, number, chosen, seed) for seed in (1, 2))
    assert first.losses
    assert all(torch.isfinite(loss) for loss in first.losses.values())
    assert first.losses == again.losses, "a loss uses random numbers that are not in Batch.noise"
    assert first.own <= first.before.keys(), "an objective lists what is not a parameter"
    assert first.moved <= first.own, "an update reached parameters of another objective"
    assert len(first.moved) > len(first.own) / 2, "an update left most of its parameters alone"
    for ours, theirs in zip(first.method.parameters(), again.method.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_half_precision_learns_the_same(name: str, task: Task) -> None:
    for number, stage in enumerate(begun(name).stages()):
        for chosen in range(len(stage.objectives)):
            full = Update(name, task, number, chosen, 1)
            half = Update(name, task, number, chosen, 1, "bf16")
            assert half.moved <= half.own
            assert len(half.moved) > len(half.own) / 2
            for key, loss in full.losses.items():
                torch.testing.assert_close(half.losses[key], loss, rtol=0.05, atol=0.01)


def test_half_precision_scores_alike(method: Method, task: Task) -> None:
    full = method.score(task.mixed)
    with torch.autocast("cpu", torch.bfloat16):
        half = method.score(task.mixed)
    assert half.isfinite().all()
    torch.testing.assert_close(half.double(), full.double(), rtol=0.1, atol=0.1 * float(full.std()))


def test_a_step_never_waits_for_the_device(name: str, task: Task) -> None:
    """Otherwise no CUDA graph can record it. The optimisers' own steps are torch's."""
    method = begun(name)
    for number, stage in enumerate(method.stages()):
        store = ImageStore(task.train, "cpu")
        prepare(method, stage, store)
        step = Step(method, stage, store, Engine("cpu"), compiled=False, capturable=False)
        for optimizer in step.optimizers:
            optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
        sampler = Sampler(
            stage.member or method,
            None,
            seed=0,
            stage=number,
            images=TRAIN,
            device=torch.device("cpu"),
        )
        everything = tuple(True for _ in stage.objectives)
        step(sampler.draw(0, 0, stage.batch_size), everything)  # makes what later steps reuse
        draws = sampler.draw(0, 1, stage.batch_size)
        with Waiting() as waiting:
            step(draws, everything)
        assert not waiting.found


def test_scoring_never_waits_for_the_device(method: Method, task: Task) -> None:
    """Batches of a common size are replayed as a CUDA graph."""
    if method.fits_images:
        pytest.skip("fits each image by gradient descent, so no CUDA graph replays it")
    images = task.mixed
    method.score(images)
    with Waiting() as waiting:
        method.score(images)
    assert not waiting.found


class Waiting(TorchDispatchMode):
    """Records operations for which the host waits on a GPU, or sends it a value of its own."""

    AMONG = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kind = func.overloadpacket.__name__
        places = args[1] if kind.startswith("index") and len(args) > 1 else ()
        masked = isinstance(places, (list, tuple)) and any(
            isinstance(place, Tensor) and place.dtype == torch.bool for place in places
        )
        if kind in self.AMONG or masked:
            self.found.append("".join(traceback.format_stack(limit=12)) + kind)
        return func(*args, **(kwargs or {}))


class Update:
    """One objective of a fresh method updated once, from a given state of the global generator."""

    def __init__(
        self,
        name: str,
        task: Task,
        number: int,
        chosen: int,
        seed: int,
        precision: Precision = "float32",
    ) -> None:
        self.method = begun(name)
        stage, store = self.method.stages()[number], ImageStore(task.train, "cpu")
        prepare(self.method, stage, store)
        self.before = {id(p): p.detach().clone() for p in self.method.parameters()}
        engine = Engine("cpu", precision=precision)
        step = Step(self.method, stage, store, engine, compiled=False, capturable=False)
        trained = stage.member or self.method
        sampler = Sampler(
            trained, None, seed=0, stage=number, images=TRAIN, device=torch.device("cpu")
        )
        torch.manual_seed(seed)
        active = tuple(i == chosen for i in range(len(stage.objectives)))
        step(sampler.draw(0, 0, stage.batch_size), active)
        self.losses = step.totals
        self.own = {id(p) for p in stage.objectives[chosen].parameters}
        now = {id(p): p for p in self.method.parameters()}
        self.moved = {key for key, p in now.items() if not torch.equal(p, self.before[key])}


def begun(name: str) -> Method:
    method = small(name)
    method.begin(TRAIN)
    return method.train()


def prepare(method: Method, stage: Stage, store: ImageStore) -> None:
    if stage.prepare is not None:
        method.eval()
        with torch.no_grad():
            stage.prepare([Batch(*pair, {}) for pair in store.batches(stage.batch_size)])
    method.train()


# --------------------------------------------------------------------- scoring


def test_scores_are_one_finite_number_an_image(method: Method, task: Task) -> None:
    scores = method.score(task.mixed)
    assert scores.shape == (len(task.mixed),)
    assert scores.isfinite().all()
    assert not scores.requires_grad


def test_scores_do_not_depend_on_chance(method: Method, task: Task) -> None:
    torch.manual_seed(1)
    first = method.score(task.mixed)
    torch.manual_seed(2)
    assert torch.equal(first, method.score(task.mixed))


def test_scores_do_not_depend_on_the_batch(method: Method, task: Task) -> None:
    images = task.mixed
    together = method.score(images)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    one_by_one = torch.cat([method.score(image[None]) for image in images])
    close(method.score(images[order]), together[order])
    close(one_by_one, together)


def test_an_answer_is_the_same_alone_and_among_others(method: Method, task: Task) -> None:
    """To the last bit, so that an image at a threshold is flagged in every list or in none."""
    pixels = (torch.cat((task.normal[:3], task.anomalous[:4])) * 255).round().to(torch.uint8)
    backend = TorchBackend(method, SIZE, torch.device("cpu"))
    together = backend.score(pixels)
    order = torch.tensor([4, 0, 6, 5, 2, 1, 3])
    assert torch.equal(backend.score(pixels[order]), together[order])
    assert torch.equal(torch.cat([backend.score(one[None]) for one in pixels]), together)


def test_scoring_changes_no_state(method: Method, task: Task) -> None:
    before = {key: value.clone() for key, value in method.state_dict().items()}
    method.score(task.mixed)
    method.heatmap(task.mixed)
    method.reconstruct(task.mixed)
    after = method.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not any(module.training for module in method.modules())
    assert all(parameter.grad is None for parameter in method.parameters())


def test_a_restored_method_scores_the_same(name: str, method: Method, task: Task) -> None:
    state = method.state_dict()
    kept = {key: t for key, t in state.items() if not key.startswith(method.training_only)}
    restored = small(name).eval()
    restored.restore(kept)
    restored.to(memory_format=torch.channels_last)  # the layout decides the last bits
    assert torch.equal(restored.score(task.mixed), method.score(task.mixed))


def test_learns_to_detect_a_planted_anomaly(method: Method, task: Task) -> None:
    scores = method.score(torch.cat((task.normal, task.anomalous)))
    assert auc(scores.numpy(), [0] * TEST + [1] * TEST) > 0.75


def test_detects_anomalies_by_their_strength(method: Method, task: Task) -> None:
    """A method that has learnt a part of what it should finds the bright block, but no fainter one:
    most do after a quarter of this training."""
    normal, clean = method.score(task.normal), method.score(task.clean)
    scores = [method.score(task.graded(strength)) for strength in STRENGTHS]
    labels = [0] * TEST + [1] * TEST
    faint, half, full = (auc(torch.cat((normal, one)).numpy(), labels) for one in scores)
    assert half > 0.75
    assert faint - 0.02 < half < full + 0.02
    raised = scores[STRENGTHS.index(0.5)] > clean
    assert raised.double().mean() > 0.9, "the block raises the score of the same image"


def test_heatmaps_are_higher_at_the_anomaly(method: Method, task: Task) -> None:
    heatmap = method.heatmap(task.anomalous)
    if heatmap is None:
        pytest.skip("has no map of its own")
    assert heatmap.shape == task.planted.shape
    assert heatmap.isfinite().all()
    assert heatmap[task.planted].mean() > heatmap[~task.planted].mean()


def test_reconstructions_are_images(method: Method, task: Task) -> None:
    images = method.reconstruct(task.normal)
    if images is None:
        pytest.skip("reconstructs nothing")
    assert images.shape == task.normal.shape
    assert images.min() >= 0.0
    assert images.max() <= 1.0


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))
