"""What only MNAD has: its memory against its definition, and a score scaled on normal images."""

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from squid.methods.base import Batch
from squid.methods.mnad import Mnad, MnadConfig, PrototypeMemory


def memory_and_queries() -> tuple[PrototypeMemory, torch.Tensor]:
    torch.manual_seed(0)
    queries = F.normalize(torch.randn(2, 4, 3, 3), dim=1)
    return PrototypeMemory(5, 4), queries


def test_an_update_follows_the_definition():
    memory, queries = memory_and_queries()
    cells, items = queries.movedim(1, -1).reshape(-1, 4), memory.items.clone()
    over_cells = (cells @ items.T).softmax(0)
    nearest = (cells @ items.T).argmax(1)
    for m in range(5):
        share = over_cells[:, m] / over_cells[:, m].max()
        own = nearest == m
        items[m] = F.normalize(items[m] + (share[own, None] * cells[own]).sum(0), dim=0)
    memory.losses(queries)
    memory.commit()
    assert_close(memory.items, items)


def test_items_without_cells_stay():
    memory, _ = memory_and_queries()
    memory.items.copy_(torch.eye(5, 4))
    memory.items[4] = torch.tensor([-1.0, 0.0, 0.0, 0.0])
    before = memory.items.clone()
    memory.losses(torch.eye(4)[1].view(1, 4, 1, 1))
    memory.commit()
    assert_close(memory.items, before)


def test_losses_are_those_of_the_two_nearest_items():
    memory, queries = memory_and_queries()
    queries.requires_grad_()
    cells = queries.movedim(1, -1).reshape(-1, 4)
    order = (cells @ memory.items.T).argsort(1, descending=True)
    nearest, second = memory.items[order[:, 0]], memory.items[order[:, 1]]
    compactness, separateness = memory.losses(queries)
    assert_close(compactness, (cells - nearest).square().mean())
    gap = (cells - nearest).norm(dim=1) - (cells - second).norm(dim=1)
    assert_close(separateness, (gap + 1).clamp_min(0).mean(), rtol=1e-4, atol=1e-5)
    assert_close(memory.distance(queries).mean(), compactness)


def test_reading_gives_convex_sums_of_items_and_no_gradient():
    memory, queries = memory_and_queries()
    found = memory(queries.requires_grad_())
    cell, weights = queries[1, :, 2, 0], (memory.items @ queries[1, :, 2, 0]).softmax(0)
    assert_close(found[1, :, 2, 0], weights @ memory.items)
    assert cell.requires_grad
    assert not found.requires_grad


def test_the_score_is_scaled_on_normal_images():
    """Noise ratio and distance to the memory, each as a share of its range over normal images: the
    worst reconstruction and the farthest cells count 1 among them, and others may count more."""
    torch.manual_seed(0)
    method = Mnad(MnadConfig(size=16, channels=(4, 4, 8), score_weight=0.6)).eval()
    normal, others = torch.rand(6, 1, 16, 16), torch.rand(4, 1, 16, 16).square()

    def parts(images):
        error = (images - method.reconstruct(images)).square().mean((1, 2, 3))
        queries = F.normalize(method.encoder(2 * images - 1), dim=1)
        return torch.stack((10 * (1 / error).log10(), method.memory.distance(queries)))  # (2, n)

    with torch.no_grad():
        method.finalize(Batch(part, torch.arange(3), {}) for part in normal.split(3))
        known, seen = parts(normal), parts(others)
        low, high = known.amin(1, keepdim=True), known.amax(1, keepdim=True)
        ratio, distance = (seen - low) / (high - low)
        expected = 0.6 * (1 - ratio) + 0.4 * distance
        assert expected.std() > 0.05
        assert_close(method.score(others), expected, rtol=1e-3, atol=1e-3)
        method.config = MnadConfig(size=16, channels=(4, 4, 8), score_weight=1.0)
        scores = method.score(normal)
    assert scores.argmax() == known[0].argmin()
    assert_close(torch.stack(scores.aminmax()), torch.tensor([0.0, 1.0]), rtol=0, atol=1e-4)
