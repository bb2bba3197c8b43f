"""Nearest neighbours against all distances sorted."""

import pytest
import torch

from squid.nn.neighbours import nearest_squared


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_find_what_brute_force_finds(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, bank = (torch.randn(n, 5, generator=generator) for n in (4, 30))
    every = (queries[:, None] - bank).square().sum(-1)
    found = nearest_squared(queries, bank, 3, chunk=chunk)
    torch.testing.assert_close(found, every.sort().values[:, :3])


def test_a_row_of_the_bank_is_at_no_distance() -> None:
    bank = 1000.0 + torch.rand(20, 64)  # where products of matrices lose all digits
    assert nearest_squared(bank[:3], bank, 1).eq(0).all()


def test_a_small_bank_gives_what_it_has() -> None:
    assert nearest_squared(torch.zeros(2, 3), torch.ones(1, 3), k=2).tolist() == [[3.0], [3.0]]
