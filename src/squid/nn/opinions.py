"""What the judges of a training said of its images.

One judge changes its mind from epoch to epoch, and so does the drawing that it judges. A judge
whose weights are averaged over epochs does so less, and what it said over time not at all.
"""

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from squid.nn.conv import Statistics, at_least_float32
from squid.nn.discriminator import Discriminator

VIEWS = 2


class Opinions(nn.Module):
    """What an averaged judge said of each view of each training image: the mean over the times that
    it was heard. In both means later ones are heavier. Doubts are counted from their mean over the
    images as they are, in units of their spread.
    """

    said: Tensor
    times: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, judge: Discriminator) -> None:
        super().__init__()
        self.judge = AveragedModel(judge, avg_fn=later_heavier, use_buffers=True)
        self.judge.requires_grad_(False)
        self.register_buffer("said", torch.zeros(0, VIEWS))  # (n, v)
        self.register_buffer("times", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    def begin(self, images: int) -> None:
        self.said = torch.zeros(images, VIEWS)

    def average(self, judge: Discriminator) -> int:
        """One more state for the averaged judge; how many there are now."""
        self.judge.update_parameters(judge)
        return int(self.judge.n_averaged)

    def hear(self, drawn: Iterable[Tensor], statistics: Statistics) -> None:
        """Drawings of all views of all training images, (b * v, 1, h, w) at a time."""
        doubts = torch.cat([self._doubts(one, statistics) for one in drawn])  # (n, v)
        self.said.copy_(later_heavier(self.said, _counted(doubts, *_units(doubts)), self.times))
        self.times += 1

    def _doubts(self, drawn: Tensor, statistics: Statistics) -> Tensor:
        logits: Tensor = self.judge(drawn, statistics)
        return by_view(-logits.mean(1))

    def take_measure(self, doubts: Iterable[Tensor]) -> None:
        """Of one who is to learn what was said: by its first doubts of all training images, (b, v)
        at a time."""
        mean, spread = _units(torch.cat(list(doubts)))
        self.mean.copy_(mean)
        self.spread.copy_(spread)

    def contradiction(self, doubts: Tensor, index: Tensor) -> Tensor:
        """(b, v), (b,) -> (b, v): by how much one whose measure was taken says something else."""
        return _counted(doubts, self.mean, self.spread) - self.said[index]


def _units(doubts: Tensor) -> tuple[Tensor, Tensor]:
    spread, mean = torch.std_mean(doubts[:, 0], correction=0)
    return mean, torch.where(spread > 0, spread, 1.0)


def _counted(doubts: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return (doubts - mean) / spread


def by_view(doubts: Tensor) -> Tensor:
    """(b * v,) -> (b, v)."""
    return at_least_float32(doubts).view(-1, VIEWS)


def later_heavier(mean: Tensor, new: Tensor, before: Tensor | int) -> Tensor:
    """The mean of `before` + 1 states, of which the n-th weighs n: what was first fades."""
    return mean + (new - mean) * 2 / (before + 2)


def views(images: Tensor) -> Tensor:
    """(b, 1, h, w) -> (b * v, 1, h, w), those of an image together: as it is, and moved right and
    up by a twenty-fifth of its side, where the border goes on."""
    step = max(1, images.shape[-1] // 25)
    moved = F.pad(images, (step, 0, 0, step), mode="replicate")[..., step:, :-step]
    return torch.stack((images, moved), 1).flatten(0, 1)


def rebatched(batches: Iterable[Tensor], least: int) -> Iterator[Tensor]:
    """The same images in the same order, at least so many at once, but for the last."""
    waiting: list[Tensor] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= least:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)
