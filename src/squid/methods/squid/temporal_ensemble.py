"""Temporal ensembling of a discriminator's scores (Laine & Aila, ICLR 2017).

The scores of a discriminator change from epoch to epoch, as do the reconstructions that it scores.
An average of its weights over epochs varies less, and the mean of its scores over the training
varies least.
"""

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from squid.nn.conv import Statistics, at_least_float32
from squid.nn.discriminator import Discriminator

VIEWS = 2


class TemporalEnsemble(nn.Module):
    """Targets: for each view of each training image, the mean over all updates of the scores of an
    averaged discriminator. Both means, of weights and of scores, weigh later states more. Scores
    are standardised by the mean and spread of the unmoved views before they are averaged.
    """

    targets: Tensor
    updates: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, discriminator: Discriminator) -> None:
        super().__init__()
        # Buffers are averaged as well: the tracked statistics belong to the weights.
        self.discriminator = AveragedModel(discriminator, avg_fn=linear_average, use_buffers=True)
        self.discriminator.requires_grad_(False)
        self.register_buffer("targets", torch.zeros(0, VIEWS))  # (n, v)
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    def begin(self, images: int) -> None:
        self.targets = torch.zeros(images, VIEWS)

    def average(self, discriminator: Discriminator) -> int:
        """Adds a state to the averaged discriminator and returns the number of states so far."""
        self.discriminator.update_parameters(discriminator)
        return int(self.discriminator.n_averaged)

    def update_targets(self, reconstructions: Iterable[Tensor], statistics: Statistics) -> None:
        """Scores the reconstructions of all views of all training images, (b * v, 1, h, w) each."""
        # On one scale before they are averaged: discriminators of two epochs differ in theirs.
        scores = torch.cat([self._scores(one, statistics) for one in reconstructions])  # (n, v)
        standardised = _standardised(scores, *_mean_and_spread(scores))
        self.targets.copy_(linear_average(self.targets, standardised, self.updates))
        self.updates += 1

    def _scores(self, reconstructions: Tensor, statistics: Statistics) -> Tensor:
        logits: Tensor = self.discriminator(reconstructions, statistics)
        return by_view(-logits.mean(1))

    def fit_scale(self, scores: Iterable[Tensor]) -> None:
        """Fits the scale of the discriminators that will learn the targets to their first scores of
        all training images, (b, v) each."""
        mean, spread = _mean_and_spread(torch.cat(list(scores)))
        self.mean.copy_(mean)
        self.spread.copy_(spread)

    def error(self, scores: Tensor, index: Tensor) -> Tensor:
        """(b, v), (b,) -> (b, v): how far scores, on the fitted scale, are from the targets."""
        return _standardised(scores, self.mean, self.spread) - self.targets[index]


def _mean_and_spread(scores: Tensor) -> tuple[Tensor, Tensor]:
    # The first view is the unmoved image, which is what is scored later.
    spread, mean = torch.std_mean(scores[:, 0], correction=0)
    return mean, torch.where(spread > 0, spread, 1.0)


def _standardised(scores: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return (scores - mean) / spread


def by_view(scores: Tensor) -> Tensor:
    """(b * v,) -> (b, v)."""
    return at_least_float32(scores).view(-1, VIEWS)


def linear_average(mean: Tensor, new: Tensor, before: Tensor | int) -> Tensor:
    """The mean of `before` + 1 states in which the n-th has weight n, so that early ones fade."""
    return mean + (new - mean) * 2 / (before + 2)


def views(images: Tensor) -> Tensor:
    """(b, 1, h, w) -> (b * v, 1, h, w): each image as it is, followed by the same image moved right
    and up by a twenty-fifth of its side, with the border repeated."""
    step = max(1, images.shape[-1] // 25)
    # Padded at the left and below, then cut at the top and right.
    moved = F.pad(images, (step, 0, 0, step), mode="replicate")[..., step:, :-step]
    return torch.stack((images, moved), 1).flatten(0, 1)


def rebatched(batches: Iterable[Tensor], least: int) -> Iterator[Tensor]:
    """The same images in the same order, in batches of at least `least` but for the last."""
    waiting: list[Tensor] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= least:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)
