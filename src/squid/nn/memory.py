"""Memories of normal patterns: the Memory Queue of past features and the learnable Memory Matrix
(SQUID, sec. 3.2).

A memory holds `n` slots of width `d` for each of its `r` regions. Tokens (b, p, d) read it in one
batched operation; with one region per position (r = p) the memory is space-aware, with a single one
(r = 1) every position reads the same slots.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from squid.nn.conv import at_least_float32
from squid.nn.ranks import ALONE, Ranks

TopK = Literal["paper", "authors"]
Similarity = Literal["dot", "distance", "cosine"]

TINY = 1e-12


def gumbel_shrink(similarity: Tensor, k: int, topk: TopK = "paper") -> Tensor:
    """Weights of the most similar slots, summing to one; the gradient is that of the whole softmax
    (SQUID, sec. 3.2, eq. 1).

    `paper` keeps the `k` largest (and ties of the last). `authors` keeps what is strictly above the
    k-th largest: k - 1 of them, and none where all are equal.
    """
    # Deviation: eq. 1 shrinks the similarities; like the authors we shrink their softmax and
    # renormalise (docs/paper.md).
    soft = similarity.softmax(-1)
    # Straight-through: the value is the hard selection, the gradient that of the softmax.
    hard = F.normalize(keep_top(soft, k, topk), p=1, dim=-1, eps=TINY)
    return soft + (hard - soft).detach()


def keep_top(w: Tensor, k: int, topk: TopK) -> Tensor:
    """`w` where it is among the largest of its row, else zero."""
    threshold = w.topk(k, dim=-1).values[..., -1:]
    return torch.where(w >= threshold, w, 0.0) if topk == "paper" else hard_shrink(w, threshold)


def hard_shrink(w: Tensor, threshold: Tensor | float) -> Tensor:
    """`w` where it is above the threshold, else zero, in the continuous form of MemAE."""
    above = w - threshold
    return F.relu(above) * w / (above.abs() + TINY)


@dataclass(frozen=True)
class Shrinkage:
    """How similarities (..., n) become the weights of a read."""

    kind: Literal["gumbel", "hard", "none"] = "gumbel"
    of: Literal["softmax", "similarity"] = "softmax"
    """The softmax is shrunk, or the raw similarities as eq. 1 is written."""
    k: int = 5
    topk: TopK = "paper"
    threshold: float = 0.0025
    temperature: float = 1.0
    """Divides the similarities: the lower, the more the most similar slot outweighs the next."""

    def __call__(self, similarity: Tensor) -> Tensor:
        similarity = similarity / self.temperature  # (..., n)
        raw = self.of == "similarity"
        if self.kind == "gumbel" and not raw:
            return gumbel_shrink(similarity, self.k, self.topk)
        soft = similarity.softmax(-1)
        if self.kind == "gumbel":
            return soft + (keep_top(similarity, self.k, self.topk) - soft).detach()
        weights = similarity if raw else soft
        if self.kind == "none":
            return weights
        return F.normalize(hard_shrink(weights, self.threshold), p=1, dim=-1, eps=TINY)


def read(
    tokens: Tensor, slots: Tensor, shrink: Shrinkage, similarity: Similarity = "dot"
) -> Tensor:
    """Each token (b, p, d) as a weighted sum of the slots (r, n, d) of its region."""
    slots = at_least_float32(slots)
    weights = read_weights(tokens, slots, shrink, similarity)  # (b*q, r, n)
    with torch.autocast(tokens.device.type, enabled=False):
        found = torch.einsum("brn,rnd->brd", weights, slots).to(tokens.dtype)
    return rearrange(found, "(b q) r d -> b (r q) d", b=tokens.shape[0])


def read_weights(
    tokens: Tensor, slots: Tensor, shrink: Shrinkage, similarity: Similarity = "dot"
) -> Tensor:
    """(b, r*q, d), (r, n, d) -> (b*q, r, n): the weight of each slot in the read of each token. A
    token reads the slots of its own region only."""
    # With fewer regions than positions, several positions become rows that read the same slots.
    query = rearrange(tokens, "b (r q) d -> (b q) r d", r=slots.shape[0])
    with torch.autocast(tokens.device.type, enabled=False):  # ranking slots needs the precision
        return shrink(_similarity(at_least_float32(query), at_least_float32(slots), similarity))


def _similarity(query: Tensor, slots: Tensor, kind: Similarity) -> Tensor:
    """(b, r, d), (r, n, d) -> (b, r, n).

    `dot` products favour slots of large norm; `distance` is minus half the squared distance, up to
    a constant of the token; `cosine` compares directions only.
    """
    product = torch.einsum("brd,rnd->brn", query, slots)
    if kind == "distance":
        return product - slots.square().sum(-1) / 2
    if kind == "cosine":
        norms: Tensor = query.norm(dim=-1, keepdim=True) * slots.norm(dim=-1)  # (b, r, n)
        return product / norms.clamp_min(TINY)
    return product


class Memory(nn.Module):
    """Slots (r, n, d) that tokens read."""

    slots: Tensor

    def __init__(
        self,
        regions: int,
        slots: int,
        width: int,
        shrink: Shrinkage,
        similarity: Similarity = "dot",
    ) -> None:
        super().__init__()
        self.shrink, self.similarity = shrink, similarity
        bound = width**-0.5
        self._hold(torch.empty(regions, slots, width).uniform_(-bound, bound))

    def _hold(self, slots: Tensor) -> None:
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, r*q, d) -> (b, r*q, d)."""
        return read(tokens, self.slots, self.shrink, self.similarity)

    def weights(self, tokens: Tensor) -> Tensor:
        """(b, r*q, d) -> (b*q, r, n): the weight of each slot in the read of each token. Nothing is
        stored."""
        return read_weights(tokens, self.slots, self.shrink, self.similarity)


class MemoryQueue(Memory):
    """Copies of past features, first in first out. Reading gives no gradient to the slots."""

    pointer: Tensor
    ranks: Ranks = ALONE
    pending: Tensor | None = None
    """Tokens of the last pass in training, which `commit` will store."""

    def _hold(self, slots: Tensor) -> None:
        self.register_buffer("slots", slots)
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.keep(tokens)
        return super().forward(tokens)

    def keep(self, tokens: Tensor) -> None:
        """Remembers tokens that `commit` will store."""
        self.pending = tokens.detach()

    @torch.no_grad()
    def commit(self) -> None:
        """Stores the pending tokens of all ranks over the oldest slots; of more tokens than slots,
        the last."""
        assert self.pending is not None, "commit() follows a forward pass in training mode"
        regions, size, _ = self.slots.shape
        tokens = self.ranks.gather(self.pending)
        rows = rearrange(tokens, "b (r q) d -> r (b q) d", r=regions)  # (r, count, d)
        count = rows.shape[1]
        # Indices on the device instead of slices, so that nothing waits for the pointer's value.
        order = torch.arange(max(count - size, 0), count, device=rows.device)
        index = (self.pointer + order) % size
        # Indices must be unique, so of more tokens than slots only the last are stored.
        self.slots.index_copy_(1, index, rows[:, -size:].to(self.slots.dtype))
        self.pointer.add_(count).remainder_(size)


class MemoryMatrix(Memory):
    """Slots that are learned by gradient descent (MemAE)."""

    def _hold(self, slots: Tensor) -> None:
        self.slots = nn.Parameter(slots)
