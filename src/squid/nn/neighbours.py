"""Nearest neighbours in a bank of features."""

import torch
from torch import Tensor

EXACT = "donot_use_mm_for_euclid_dist"  # a product of matrices loses the small distances


def nearest_squared(queries: Tensor, bank: Tensor, k: int, chunk: int = 8192) -> Tensor:
    """(b, d), (n, d) -> (b, k): squared distances to the `k` nearest rows, nearest first.

    The bank is walked through in chunks, so that memory does not grow with it.
    """
    best = queries.new_empty(len(queries), 0)
    for rows in torch.split(bank, chunk):
        distances = torch.cdist(queries, rows, compute_mode=EXACT)
        best = torch.cat((best, distances), 1)
        best = best.topk(min(k, best.shape[1]), largest=False).values  # (b, k)
    return best.square()
