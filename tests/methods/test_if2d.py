"""What only IF 2D has: classes of intensity, the implicit field, and codes fitted to images."""

import pytest
import torch
import torch.nn.functional as F

from squid.methods.base import Batch
from squid.methods.if2d import (
    Dropout,
    If2d,
    If2dConfig,
    ImplicitField,
    intensity_centres,
    positional_encoding,
    quantise,
)

SMALL = {"size": 16, "latent": 8, "hidden": 32, "layers": 3, "again": 1, "frequencies": 2}
SMALL |= {"classes": 4, "points": 64, "fit_points": 100, "fit_steps": 20, "fit_lr": 0.05}


def tiny(**settings: object) -> If2d:
    torch.manual_seed(0)
    method = If2d(If2dConfig(**(SMALL | settings)))
    method.begin(5)
    method.centres.copy_(torch.tensor([0.1, 0.4, 0.6, 0.9]))
    return method.eval()


def random_images(n: int = 3) -> torch.Tensor:
    return torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def test_centres_are_the_levels_of_clustered_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.1, 0.4, 0.9])
    choice = torch.randint(3, (4, 1, 16, 16), generator=generator)
    noise = 0.02 * torch.randn(choice.shape, generator=generator)
    images = levels[choice] + noise
    centres = intensity_centres(iter(images.split(2)), 3)
    means = torch.stack([images[choice == k].mean() for k in range(3)])
    torch.testing.assert_close(centres, means, rtol=0, atol=2e-3)


def test_more_classes_than_levels_leave_the_last_ones_empty() -> None:
    images = torch.zeros(1, 1, 4, 4)
    images[..., 2:] = 1.0
    centres = intensity_centres([images], 5)
    assert centres.shape == (5,)
    assert quantise(images, centres).unique().tolist() == [0, 1]


def test_the_majority_of_neighbours_decides() -> None:
    images = torch.zeros(1, 1, 4, 4)
    images[..., 2:] = 1.0
    images[0, 0, 1, 0] = 1.0  # alone among zeros
    classes = quantise(images, torch.tensor([0.0, 1.0]))[0]
    assert classes[:, 0].eq(0).all()
    assert classes[:, 3].eq(1).all()


def test_positions_are_encoded_by_doubling_waves() -> None:
    encoding = positional_encoding(5, 3).view(5, 5, 2, 6)  # row, column, coordinate, wave
    y, x = -0.5, 1.0  # row 1, column 4
    frequency = torch.pi * torch.tensor([1.0, 2.0, 4.0])
    for coordinate, row in zip((y, x), encoding[1, 4], strict=True):
        waves = frequency * coordinate
        torch.testing.assert_close(row, torch.cat((waves.sin(), waves.cos())))


def test_dropout_keeps_its_share_and_pairs_are_independent() -> None:
    generator = torch.Generator().manual_seed(0)
    n = 40_000
    points, units = (torch.rand(n, 2, 2, generator=generator) for _ in range(2))
    kept = Dropout(points, units, 0.2)(torch.ones(n, 2, 2), 1)  # (b, points, units)
    assert set(kept.unique().tolist()) == {0.0, 1.25}
    share = kept.gt(0).float()
    assert abs(share.mean() - 0.8) < 0.01
    # below four times the standard error of this sample
    for other in (share[:, 0, 1], share[:, 1, 0], share[:, 1, 1]):
        assert abs(torch.corrcoef(torch.stack((share[:, 0, 0], other)))[0, 1]) < 0.02


def test_each_image_has_its_own_field() -> None:
    torch.manual_seed(0)
    field = ImplicitField(code=3, position=8, hidden=16, layers=4, outputs=5, again=2)
    codes, positions = torch.randn(2, 3), positional_encoding(4, 2)[None]
    both = field(codes, positions)
    assert both.shape == (2, 16, 5)
    torch.testing.assert_close(both[1:], field(codes[1:], positions))
    assert not torch.allclose(both[0], both[1])


def test_codes_are_one_per_training_image_and_not_needed_later() -> None:
    method = tiny()
    assert method.codes.shape == (5, 8)
    kept = {k: v for k, v in method.state_dict().items() if not k.startswith(method.training_only)}
    fresh = If2d(If2dConfig(**SMALL)).eval()
    fresh.restore(kept)
    with torch.no_grad():
        torch.testing.assert_close(fresh.score(random_images()), method.score(random_images()))


def test_codes_are_never_longer_than_one() -> None:
    method = tiny()
    with torch.no_grad():
        method.codes[0] = 3.0
        short = method.codes[1].mul_(0.1).clone()
    method._shorten_codes()
    assert method.codes[0].norm().item() == pytest.approx(1.0)
    assert torch.equal(method.codes[1], short)


def test_the_weight_of_lengths_grows_with_the_epochs() -> None:
    method = tiny(batch_size=5)
    codes = torch.ones(2, 8)
    shared = {"codes": codes, "cross_entropy": torch.zeros(())}
    batch = Batch(random_images(2), torch.arange(2), {})
    lengths = []
    for _ in range(3):
        lengths.append(method._code_loss(batch, shared)["length"].item())
        for _ in range(60):  # with five images a step is an epoch
            method._count_step()
    full = 1e-4 * 64 * 8**0.5
    assert lengths == pytest.approx([0.0, 0.6 * full, full], rel=1e-4)


def test_the_fit_explains_an_image_better_than_no_code() -> None:
    """Measured by the loss that the fit minimises, before the heatmap's smoothing."""
    classes = quantise(random_images(), tiny().centres).flatten(1)
    with torch.no_grad():
        fitted, unfitted = (
            F.cross_entropy(method._explain(classes).movedim(-1, 1), classes, reduction="none")
            for method in (tiny(fit_steps=40), tiny(fit_lr=0.0))
        )
    assert (fitted.mean(1) < unfitted.mean(1)).all()


def test_heatmaps_are_cross_entropies_with_lone_peaks_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = tiny()
    logits = torch.zeros(1, 256, 4)
    monkeypatch.setattr(method, "_explain", lambda classes: logits)
    flat = method.heatmap(torch.full((1, 1, 16, 16), 0.1))
    torch.testing.assert_close(flat, torch.full((1, 16, 16), 4.0).log())
    logits[0, 8 * 16 + 8, 0] = -50.0
    torch.testing.assert_close(method.heatmap(torch.full((1, 1, 16, 16), 0.1)), flat)


def test_groups_of_images_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    method = tiny()
    with torch.no_grad():
        together = method.score(random_images())
        monkeypatch.setattr("squid.methods.if2d.FIT_ROWS", 100)
        torch.testing.assert_close(method.score(random_images()), together)
