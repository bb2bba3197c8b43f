"""SQUID's additions to the paper: predicted variance, the stage of lesions, several scores."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from squid.config import parse
from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.methods.base import Batch, Method
from squid.methods.squid import Squid
from squid.methods.squid.config import SquidConfig
from squid.train import Engine, Monitor, TrainConfig, train
from tests.chests import chests

SMALL = {
    "size": 32, "width": 4, "depth": 2, "merge_level": 1, "slots": 8, "matrix_slots": 8,
    "heads": 2, "discriminator_width": 2, "epochs": 2, "batch_size": 8,
}  # fmt: skip
LESIONS = {"channels": (4, 8), "epochs": 2, "batch_size": 8}


def small(**settings: object) -> Squid:
    torch.manual_seed(0)
    return Squid(SquidConfig(**(SMALL | settings)))


def clouds(b: int) -> Tensor:
    """(b, 1, 32, 32) smooth images in [0, 1]."""
    coarse = torch.rand(b, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return F.interpolate(coarse, (32, 32), mode="bilinear")


def train_small(method: Method) -> None:
    pixels = (255 * clouds(16)).to(torch.uint8)
    store = ImageStore(pixels, torch.device("cpu"))
    config = TrainConfig(augment=False)
    train(method, store, config, seed=0, engine=Engine("cpu"), monitor=Monitor(), state=None)


def test_the_variance_learns_from_the_student_alone() -> None:
    """Its term reaches the student's output maps and leaves teacher and discriminator alone."""
    method = small(uncertainty=True)
    generator = torch.Generator().manual_seed(2)
    noise = {
        name: torch.bernoulli(torch.full(spec.shape, spec.probability), generator=generator)
        for name, spec in method.noise(2).items()
    }
    batch = Batch(clouds(2), torch.arange(2), noise)
    (stage,) = method.stages()
    _, objective = stage.objectives
    assert stage.shared is not None
    shared = dict(stage.shared(batch, frozenset({"generator"})))
    assert objective.concurrent is not None
    term = objective.loss(batch, shared | dict(objective.concurrent(batch, shared)))["uncertainty"]
    own = {id(p) for p in objective.parameters}
    for name, parameter in method.named_parameters():
        (gradient,) = torch.autograd.grad(term, parameter, retain_graph=True, allow_unused=True)
        if name.startswith("student.log_variance."):
            assert gradient.abs().sum() > 0
            assert id(parameter) in own
        elif name.startswith(("teacher.", "discriminator.")):
            assert gradient is None


def test_the_relative_residual_divides_by_the_predicted_variance() -> None:
    method, images = small(uncertainty=True, score="relative_residual").eval(), clouds(3)
    assert method.student.log_variance is not None
    with torch.no_grad():
        method.student.log_variance.weight.zero_()
        method.student.log_variance.bias.fill_(torch.tensor(0.25).log())
        error = (images - method.reconstruct(images)).square()
        assert_close(method.score(images), 4 * error.mean((1, 2, 3)))
        assert_close(method.heatmap(images), 4 * error[:, 0])


def test_the_stage_of_lesions_changes_the_segmentation_alone() -> None:
    method = small(lesions=LESIONS, score="lesions")
    train_stage, lesion_stage = method.stages()
    assert not train_stage.snapshots
    assert lesion_stage.objectives[0].parameters == tuple(method.segmentation.parameters())
    generator = {id(p) for one in train_stage.objectives for p in one.parameters}
    assert generator.isdisjoint(map(id, method.segmentation.parameters()))
    train_small(method)

    # Another training, stopped before the stage of lesions, ends with the same generator.
    before = small()
    train_small(before)
    state = method.state_dict()
    for name, value in before.state_dict().items():
        assert torch.equal(state[name], value), name


def test_the_segmentation_sees_the_image_and_its_reconstruction() -> None:
    method, images = small(lesions=LESIONS, score="lesions").eval(), clouds(2)
    with torch.no_grad():
        both = torch.cat((images, method.reconstruct(images)), 1)
        logits = method.segmentation(both)
        assert_close(method.heatmap(images), logits[:, 0])
        assert_close(method.score(images), logits.mean((1, 2, 3)))
        assert not torch.allclose(logits, method.segmentation(both.flip(1)))


def test_several_scores_count_the_same() -> None:
    kinds = ("discriminator", "residual", "structure")
    method = small(score=kinds)
    train_small(method)
    # In float64: after so short a training the discriminator's scores hardly differ.
    method.double().eval()
    images = (255 * clouds(16)).to(torch.uint8).double() / 255
    with torch.no_grad():
        method.finalize([Batch(images, torch.arange(16), {})])
        expected = torch.zeros(16, dtype=torch.float64)
        for kind in kinds:
            alone = small(score=kind).double().eval()
            alone.load_state_dict(method.state_dict(), strict=False)
            score = alone.score(images)
            expected += (score - score.mean()) / score.std(correction=0) / len(kinds)
        assert_close(method.score(images), expected)
        # The first score that has a map gives the heatmap.
        residual = small(score="residual").double().eval()
        residual.load_state_dict(method.state_dict(), strict=False)
        assert_close(method.heatmap(images), residual.heatmap(images))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "relative_residual"}, "needs uncertainty"),
        ({"score": "lesions"}, "need each other"),
        ({"lesions": LESIONS}, "need each other"),
        ({"score": ()}, "at least one kind"),
        ({"score": ("residual", "residual")}, "each kind once"),
        ({"lesions": LESIONS | {"channels": (4,) * 6}, "score": "lesions"}, "size 32"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(SquidConfig, SMALL | settings, "a recipe")


def test_within_the_lungs_maps_count_by_their_weights() -> None:
    method = small(
        region="lungs", uncertainty=True, lesions=LESIONS, score=("relative_residual", "lesions")
    ).eval()
    images = chests(16)
    lesion_stage = method.stages()[-1]
    assert lesion_stage.prepare is not None
    with torch.no_grad():
        lesion_stage.prepare([Batch(images, torch.arange(16), {})])
        assert method.lungs is not None
        assert method.lungs.weight.max() > 2 * method.lungs.weight.mean()
        method.finalize([Batch(images, torch.arange(16), {})])
        prediction = method._predict(images)
        for place, kind in enumerate(("relative_residual", "lesions")):
            maps = method._map(
                kind,
                images,
                prediction,
            )[:, 0]
            assert_close(method._scores(images)[:, place], method.lungs.mean(maps))
        maps = method._map("relative_residual", images, prediction)[:, 0]
        assert_close(method.heatmap(images), method.lungs.shade(maps))


def test_the_whole_image_has_no_lungs_to_keep() -> None:
    assert not [name for name in small().state_dict() if "lungs" in name]


def test_a_region_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="'lungs' would do nothing for score 'discriminator'"):
        parse(SquidConfig, SMALL | {"region": "lungs"}, "a recipe")
