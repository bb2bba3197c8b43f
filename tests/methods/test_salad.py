"""What only the SALAD-style method has: its corruptions, its centre, its balanced score."""

import torch

from squid.methods.base import Batch
from squid.methods.salad import (
    Salad,
    SaladConfig,
    bend_intensities,
    fill_box,
    shuffle_blocks,
)


def test_pixels_stay_in_their_block_and_unchosen_blocks_stay():
    images, order = torch.rand(2, 2, 1, 16, 16).unbind()
    chosen = torch.zeros(2, 16)
    chosen[:, 5] = 1  # row 1, column 1
    shuffled = shuffle_blocks(images, order, chosen, 4)
    changed = (shuffled != images)[:, 0]
    assert changed[:, 4:8, 4:8].any()
    changed[:, 4:8, 4:8] = False
    assert not changed.any()
    before, after = (x[:, 0, 4:8, 4:8].flatten(1).sort().values for x in (images, shuffled))
    assert torch.equal(before, after)


def test_a_curve_rises_between_fixed_ends():
    ramp = torch.linspace(0, 1, 64).expand(5, 1, 1, 64)
    bent = bend_intensities(ramp, torch.rand(5, 2))
    assert (bent[..., 1:] >= bent[..., :-1]).all()
    torch.testing.assert_close(bent[..., [0, -1]], ramp[..., [0, -1]])
    straight = bend_intensities(ramp, torch.tensor([2 / 3, 1 / 3]).expand(5, 2))
    torch.testing.assert_close(straight, ramp)


def test_a_box_lies_within_the_image():
    images = torch.rand(3, 1, 16, 16)
    box = torch.tensor([[0.0, 0, 0, 0, 0.5], [1, 1, 1, 1, 0.5], [1, 0, 0, 1, 0.5]])
    filled = fill_box(images, box, (0.125, 0.5)) == 0.5
    assert filled.sum((1, 2, 3)).tolist() == [4, 64, 16]
    assert filled[0, 0, :2, :2].all()
    assert filled[1, 0, 8:, 8:].all()
    assert filled[2, 0, 14:, :8].all()


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


def test_each_image_is_corrupted_in_one_of_three_ways():
    method = small()
    kind = torch.tensor([0.1, 0.5, 0.9, 0.9])[:, None, None, None]
    batch = draw_batch(method, kind=kind)
    corrupted, images = method._corrupt(batch), batch.images
    assert torch.equal(corrupted[0].flatten().sort().values, images[0].flatten().sort().values)
    assert torch.equal(corrupted[1].flatten().argsort(), images[1].flatten().argsort())
    gray = batch.noise["box"][2:, 4]
    changed = corrupted[2:] != images[2:]
    assert 0 < changed.float().mean() < 0.2
    assert torch.equal(
        corrupted[2:][changed], gray[:, None, None, None].expand_as(changed)[changed]
    )
    assert not torch.equal(corrupted[0], images[0])
    assert not torch.equal(corrupted[1], images[1])


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
        codes, appearance = method._parts(images)
        scores = method.score(images)
    torch.testing.assert_close(method.centre, codes.mean(0))
    distance = scores - appearance
    torch.testing.assert_close(distance.std(), appearance.std(), rtol=1e-4, atol=1e-7)


def test_critics_learn_to_separate_real_from_generated():
    """A critic that is right has no loss, and no gradient reaches the translators."""
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
