"""Scoring in batches of one fixed size, so that a score is the same alone and among others.

Kernels choose the order of their sums by the shape of the batch: the last digits of a score differ
between batches of 1 and of 16, but not between the places and the neighbours in one batch. An image
near a threshold would else be flagged in one list and not in another (docs/adr, 17).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from squid.errors import NotFiniteError

BATCH_SIZE = {"cuda": 256, "cpu": 4}
"""Images that are scored together, always: fewer are filled up."""


def score_in_batches(score: Callable[[Tensor], Tensor], pixels: Tensor, size: int) -> Tensor:
    """(n, 1, h, w) -> (n,), by calls with exactly `size` images."""
    parts = [
        score(_filled_up(part, size))[: len(part)]
        for part in torch.split(pixels, size)
        if len(part)
    ]
    return torch.cat(parts) if parts else torch.empty(0)


def score_together(score: Callable[[Tensor], Tensor], pixels: Tensor, size: int) -> Tensor:
    """(n, 1, h, w) -> (n,) for a method whose scores depend on the batch: batches of `size` in a
    random order that only n decides, the same on every device. The last one is smaller: copies
    would have a part in the scores."""
    if not len(pixels):
        return torch.empty(0)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    scores = torch.cat([score(pixels[part]) for part in torch.split(order, size)])
    return scores[order.argsort().to(scores.device)]


def refuse_not_finite(scores: Tensor, sources: tuple[str, ...]) -> None:
    """An error that names the first image whose score is not a number."""
    strange = (~torch.isfinite(scores)).nonzero()
    if len(strange):
        place = int(strange[0])
        raise NotFiniteError(
            f"The score of {sources[place]} is {float(scores[place])}, which is no answer; "
            "the method's weights do not suit this image."
        )


def _filled_up(part: Tensor, size: int) -> Tensor:
    """With copies of the last image, which no method finds unusual."""
    missing = size - len(part)
    return torch.cat((part, part[-1:].expand(missing, *part.shape[1:]))) if missing else part
