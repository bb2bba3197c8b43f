"""Several trainings that score together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from squid.methods.base import Batch, Method, Stage
from squid.nn.standardiser import Standardiser
from squid.nn.streams import Concurrent


class Ensemble(Method):
    """Members are trained one after the other. Those of one method differ only in their initial
    weights and in the random numbers of their stages; the mean of their scores varies less than
    each of them."""

    members: Sequence[Method]

    def __init__(self, members: Iterable[Method]) -> None:
        super().__init__()
        self.members = cast("Sequence[Method]", nn.ModuleList(members))
        self.fits_images = any(member.fits_images for member in self.members)
        # Members of one method agree; parts of a fusion are scored in the largest of their batches.
        together = [member.scored_together for member in self.members]
        self.scored_together = max(filter(None, together), default=None)
        # What a member needs in training only has the member's path before its name here.
        self.training_only = tuple(
            f"members.{i}.{prefix}"
            for i, member in enumerate(self.members)
            for prefix in member.training_only
        )
        # Members may score on different scales; standardised, all weigh the same.
        self.standardiser = Standardiser(len(self.members))

    def begin(self, images: int) -> None:
        for member in self.members:
            member.begin(images)

    def prepare(self, images: Tensor) -> Tensor:
        """Each member prepares images for itself."""
        return images

    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            replace(stage, name=f"{stage.name} {number}", member=stage.member or member)
            for number, member in enumerate(self.members, 1)
            for stage in member.stages()
        )

    def finalize(self, batches: Iterable[Batch]) -> None:
        for member in self.members:
            member.finalize(PreparedBatches(batches, member))
        scores = torch.cat([self._scores(batch.images) for batch in batches])  # (n, members)
        for number, of_member in enumerate(scores.unbind(1)):
            self.standardiser.fit(number, of_member)

    def score(self, images: Tensor) -> Tensor:
        """The mean of the members' scores, each standardised over the training images."""
        standardised: Tensor = self.standardiser(self._scores(images))
        return standardised.mean(1)

    def _scores(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, members), on a GPU all of them concurrently."""
        # One member runs on the current stream, each other on a stream of its own.
        first, *others = self.members
        concurrent = [Concurrent(_score(m), images.device, n) for n, m in enumerate(others)]
        started = [other.start(images) for other in concurrent]
        scores = [_score(first)(images)]
        scores += [other.join(found) for other, found in zip(concurrent, started, strict=True)]
        return torch.stack(scores, 1)

    def heatmap(self, images: Tensor) -> Tensor | None:
        return _mean(member.heatmap(member.prepare(images)) for member in self.members)

    def reconstruct(self, images: Tensor) -> Tensor | None:
        return _mean(member.reconstruct(member.prepare(images)) for member in self.members)


@dataclass(frozen=True)
class PreparedBatches:
    """Batches of the training set as one method takes them; they can be iterated repeatedly."""

    batches: Iterable[Batch]
    method: Method

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            yield replace(batch, images=self.method.prepare(batch.images))


def _score(member: Method) -> Callable[[Tensor], Tensor]:
    return lambda images: member.score(member.prepare(images))


def _mean(parts: Iterable[Tensor | None]) -> Tensor | None:
    """The mean of all parts, or None if one of them is None."""
    present = []
    for part in parts:
        if part is None:
            return None
        present.append(part)
    return torch.stack(present).mean(0)
