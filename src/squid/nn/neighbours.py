"""Nearest neighbours in a bank of features."""

import torch
from torch import Tensor

EXACT = "donot_use_mm_for_euclid_dist"  # a product of matrices loses the small distances


def nearest_squared(queries: Tensor, bank: Tensor, k: int, chunk: int = 8192) -> Tensor:
    """(b, d), (n, d) -> (b, k): squared distances to the `k` nearest rows, nearest first.

    The bank is walked through in chunks, so that memory does not grow with it.
    """
    best = queries.new_empty(queries.shape[0], 0)  # an exported batch has no len()
    for rows in torch.split(bank, chunk):
        best = torch.cat((best, _distances(queries, rows)), 1)
        best = best.topk(min(k, best.shape[1]), largest=False).values  # (b, k)
    return best.square()


def _distances(queries: Tensor, rows: Tensor) -> Tensor:
    if torch.onnx.is_in_onnx_export():  # which has no operator for it
        spelt_out: Tensor = torch.linalg.vector_norm(queries[:, None] - rows, dim=-1)
        return spelt_out
    return torch.cdist(queries, rows, compute_mode=EXACT)
