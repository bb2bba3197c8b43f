"""What only IF 2D has: codes of training images, and codes fitted to new ones."""

import pytest
import torch
import torch.nn.functional as F

from squid.methods.base import Batch
from squid.methods.if2d import If2d, If2dConfig
from squid.nn.intensity import quantise

SMALL = {"size": 16, "latent": 8, "hidden": 32, "layers": 3, "again": 1, "frequencies": 2}
SMALL |= {"classes": 4, "points": 64, "fit_points": 100, "fit_steps": 20, "fit_lr": 0.05}


def tiny(**settings: object) -> If2d:
    torch.manual_seed(0)
    method = If2d(If2dConfig(**(SMALL | settings)))
    method.begin(5)
    method.centres.copy_(torch.tensor([0.1, 0.4, 0.6, 0.9]))
    return method.eval()


def draw(n: int = 3) -> torch.Tensor:
    return torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def test_codes_are_one_per_training_image_and_not_needed_later() -> None:
    method = tiny()
    assert method.codes.shape == (5, 8)
    kept = {k: v for k, v in method.state_dict().items() if not k.startswith(method.training_only)}
    fresh = If2d(If2dConfig(**SMALL)).eval()
    fresh.restore(kept)
    with torch.no_grad():
        torch.testing.assert_close(fresh.score(draw()), method.score(draw()))


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
    batch = Batch(draw(2), torch.arange(2), {})
    seen = []
    for _ in range(3):
        seen.append(method._code_loss(batch, shared)["length"].item())
        for _ in range(60):  # with five images a step is an epoch
            method._count_step()
    full = 1e-4 * 64 * 8**0.5
    assert seen == pytest.approx([0.0, 0.6 * full, full], rel=1e-4)


def test_the_fit_explains_an_image_better_than_no_code() -> None:
    """In what the fit minimises; the heatmap's smoothing comes after."""
    classes = quantise(draw(), tiny().centres).flatten(1)
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
        together = method.score(draw())
        monkeypatch.setattr("squid.methods.if2d.FIT_ROWS", 100)
        torch.testing.assert_close(method.score(draw()), together)
