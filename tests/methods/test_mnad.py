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
    torch.manual_seed(0)
    method = Mnad(MnadConfig(size=16, channels=(4, 4, 8))).eval()
    images = torch.rand(6, 1, 16, 16)
    with torch.no_grad():
        method.finalize(Batch(part, torch.arange(3), {}) for part in images.split(3))
        scores = method.score(images)
        clean = method.score(method.reconstruct(images[:1]))
    assert scores.min() >= 0.0
    assert scores.max() <= 1.0
    assert clean.isfinite().all()
