"""What only the SALAD-style method has: its centre, its spoilt images, its balanced score."""

import torch

from squid.methods.base import Batch
from squid.methods.salad import Salad, SaladConfig


def small(**settings):
    torch.manual_seed(0)
    return Salad(SaladConfig(size=32, width=4, code=6, **settings))


def draw_batch(method, b=4, **draws):
    generator = torch.Generator().manual_seed(1)
    noise = {
        name: torch.rand(spec.shape, generator=generator).round()
        if spec.kind == "bernoulli"
        else torch.rand(spec.shape, generator=generator)
        for name, spec in method.noise(b).items()
    }
    images = torch.rand(b, 1, 32, 32, generator=generator)
    return Batch(images, torch.arange(b), noise | draws)


def test_each_image_is_spoilt_in_one_of_three_ways():
    method = small()
    kind = torch.tensor([0.1, 0.5, 0.9, 0.9])[:, None, None, None]
    batch = draw_batch(method, kind=kind)
    spoilt, images = method._spoil(batch), batch.images
    assert torch.equal(spoilt[0].flatten().sort().values, images[0].flatten().sort().values)
    assert torch.equal(spoilt[1].flatten().argsort(), images[1].flatten().argsort())
    gray = batch.noise["box"][2:, 4]
    changed = spoilt[2:] != images[2:]
    assert 0 < changed.float().mean() < 0.2
    assert torch.equal(spoilt[2:][changed], gray[:, None, None, None].expand_as(changed)[changed])
    assert not torch.equal(spoilt[0], images[0])
    assert not torch.equal(spoilt[1], images[1])


def test_the_centre_follows_the_codes():
    method = small(centre_momentum=0.25)
    batch, (stage,) = draw_batch(method), method.stages()
    shared = stage.shared(batch, frozenset())
    stage.objectives[0].loss(batch, shared)
    torch.testing.assert_close(method.centre, 0.25 * shared["code"].detach().mean(0))


def test_both_parts_of_the_score_vary_equally_on_normal_images():
    method = small().eval()
    batches = [draw_batch(method, b) for b in (4, 3)]
    with torch.no_grad():
        method.finalize(iter(batches))
        images = torch.cat([batch.images for batch in batches])
        codes, appearance = method._look(images)
        scores = method.score(images)
    torch.testing.assert_close(method.centre, codes.mean(0))
    distance = scores - appearance
    torch.testing.assert_close(distance.std(), appearance.std(), rtol=1e-4, atol=1e-7)


def test_critics_tell_the_drawn_from_the_real():
    """Zero loss for a critic that is right, and the translators are not asked for gradients."""
    method = small()
    batch, (stage,) = draw_batch(method), method.stages()
    shared = stage.shared(batch, frozenset())
    method.code_critic = _Right(batch.noise["code"])
    method.image_critic = _Right(2 * batch.images - 1)
    terms = stage.objectives[1].loss(batch, shared)
    assert terms == {"images": 0, "codes": 0}
    assert not any(term.requires_grad for term in terms.values())


class _Right(torch.nn.Module):
    """One for the real, zero for the rest."""

    def __init__(self, real):
        super().__init__()
        self.real = real

    def forward(self, x):
        return torch.full((len(x), 1), float(torch.equal(x, self.real)))
