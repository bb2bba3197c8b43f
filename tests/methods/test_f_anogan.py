"""What only f-AnoGAN has: the gradient penalty, and two stages that leave each other alone."""

import pytest
import torch

from squid.methods.base import Batch
from squid.methods.f_anogan import FAnogan, FAnoganConfig, gradient_penalty


def small(**settings):
    torch.manual_seed(0)
    return FAnogan(FAnoganConfig(size=32, width=4, code=6, **settings))


def draw_batch(method, b=4):
    generator = torch.Generator().manual_seed(1)
    draws = {"normal": torch.randn, "uniform": torch.rand}
    noise = {
        name: draws[spec.kind](spec.shape, generator=generator)
        for name, spec in method.noise(b).items()
    }
    images = torch.rand(b, 1, 32, 32, generator=generator)
    return Batch(images, torch.arange(b), noise)


@pytest.mark.parametrize("norm", [0.5, 3.0])
def test_the_penalty_of_a_linear_critic_is_known(norm):
    """Its gradient is its weight, everywhere; the penalty's gradient by the weight is known too.
    The penalty has two sides: too small a gradient costs as well."""
    weight = torch.zeros(1, 1, 4, 4).index_fill_(3, torch.tensor(0), norm / 2).requires_grad_()
    real, fake = torch.rand(2, 5, 1, 4, 4).unbind()
    penalty = gradient_penalty(
        lambda x: (x * weight).sum((1, 2, 3)), real, fake, torch.rand(5, 1, 1, 1)
    )
    torch.testing.assert_close(penalty, torch.tensor((norm - 1.0) ** 2))
    (gradient,) = torch.autograd.grad(penalty, weight)
    torch.testing.assert_close(gradient, 2 * (norm - 1.0) * weight.detach() / norm)


def test_the_penalty_is_taken_between_real_and_generated():
    real, fake = torch.zeros(2, 1, 4, 4), torch.ones(2, 1, 4, 4)
    mix = torch.tensor([0.25, 1.0])[:, None, None, None]
    penalty = gradient_penalty(lambda x: x.square().sum((1, 2, 3)) / 2, real, fake, mix)
    torch.testing.assert_close(penalty, torch.tensor((0.0 + 9.0) / 2))  # norms 1 and 4


def test_five_updates_of_the_critic_for_one_of_the_generator():
    gan, encoder = small().stages()
    assert [(o.name, o.every) for o in gan.objectives] == [("critic", 1), ("generator", 5)]
    assert [o.compilable for o in gan.objectives] == [False, True]
    assert [o.name for o in encoder.objectives] == ["encoder"]


def test_the_encoder_stage_leaves_generator_and_critic_untouched():
    method = small().train()
    batch = draw_batch(method)
    method.generator(batch.noise["generator.code"])  # tracked statistics that are not the initial
    before = {key: value.clone() for key, value in method.state_dict().items()}
    (objective,) = method.stages()[1].objectives
    terms = objective.loss(batch, {})
    total = torch.stack(list(terms.values())).sum()
    torch.autograd.grad(total, objective.parameters)
    changed = [key for key, value in method.state_dict().items() if (value != before[key]).any()]
    assert changed
    assert all(key.startswith("encoder.") for key in changed)


def test_the_score_adds_pixels_and_features():
    images = torch.rand(3, 1, 32, 32)
    with torch.no_grad():
        plain, both = (small(kappa=kappa).eval() for kappa in (0.0, 2.0))
        reconstruction = plain.reconstruct(images)
        torch.testing.assert_close(
            plain.score(images), 4 * (images - reconstruction).square().mean((1, 2, 3))
        )
        features = [both.critic.features(2 * x - 1) for x in (images, reconstruction)]
        expected = plain.score(images) + 2 * (features[0] - features[1]).square().mean(1)
        torch.testing.assert_close(both.score(images), expected)


def test_published_sizes():
    with torch.device("meta"):
        method = FAnogan(FAnoganConfig())
    assert method.critic.head.in_features == 8192
    assert method.generator.enter.linear.out_features == 4 * 4 * 512
    code = torch.empty(2, 128, device="meta")
    assert method.generator(code).shape == (2, 1, 64, 64)


def test_the_critic_treats_each_image_alone():
    critic = small().critic.train()
    images = torch.rand(3, 1, 32, 32)
    torch.testing.assert_close(critic(images)[1:2], critic(images[1:2]))
