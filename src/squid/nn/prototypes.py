"""MNAD's memory (CVPR 2020): a few unit vectors that stand for all normal cells, moved by an update
rule instead of gradients."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from squid.nn.conv import at_least_float32
from squid.nn.memory import Shrinkage, read
from squid.nn.ranks import ALONE, Ranks

MARGIN = 1.0
SOFTMAX = Shrinkage(kind="none")


class PrototypeMemory(nn.Module):
    """Items (n, d). Queries are maps (b, d, h, w) whose cells are unit vectors."""

    items: Tensor
    ranks: Ranks = ALONE
    pending: Tensor | None = None
    """Cells of the last `losses`, from which `commit` will learn."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.register_buffer("items", F.normalize(torch.rand(items, width), dim=1))

    def forward(self, queries: Tensor) -> Tensor:
        """Each cell as a softmax-weighted sum of the items, without gradient."""
        cells = rearrange(queries.detach(), "b d h w -> b (h w) d")
        found = read(cells, self.items[None], SOFTMAX)
        return rearrange(found, "b (h w) d -> b d h w", h=queries.shape[2])

    def losses(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Compactness: cells lie close to their nearest item. Separateness: closer than to the
        second nearest, by a margin."""
        cells = _cells(queries)
        self.pending = cells.detach()
        nearest, second = self._nearest(cells, 2).unbind(1)
        compactness = F.mse_loss(cells, nearest)
        return compactness, F.triplet_margin_loss(cells, nearest, second, margin=MARGIN)

    def distance(self, queries: Tensor) -> Tensor:
        """(b,): how far an image's cells are from their nearest items, as in compactness."""
        cells = _cells(queries)
        squares = (cells - self._nearest(cells, 1)[:, 0]).square()
        return rearrange(squares, "(b c) d -> b (c d)", b=queries.shape[0]).mean(1)

    def _nearest(self, cells: Tensor, k: int) -> Tensor:
        """The k most similar items of each cell, nearest first: (c, d) -> (c, k, d)."""
        with torch.autocast(cells.device.type, enabled=False):  # ranking needs the precision
            similarity = cells.detach() @ self.items.T  # (c, n)
        return self.items[similarity.topk(k, dim=1).indices]

    @torch.no_grad()
    def commit(self) -> None:
        """Moves each item towards the pending cells of all ranks that are nearest to it, the more
        similar the further."""
        assert self.pending is not None, "commit() follows losses()"
        cells = self.ranks.gather(self.pending)
        similarity = cells @ self.items.T  # (c, n)
        numbers = torch.arange(len(self.items), device=cells.device)
        own = similarity.argmax(1, keepdim=True) == numbers  # (c, n)
        # The softmax over cells, divided by its largest value.
        weights = own * (similarity - similarity.amax(0)).exp()
        self.items.copy_(F.normalize(self.items + weights.T @ cells, dim=1))


def _cells(queries: Tensor) -> Tensor:
    """(b, d, h, w) -> (b*h*w, d)."""
    return at_least_float32(rearrange(queries, "b d h w -> (b h w) d"))
