"""Every random draw of a training, as a pure function of (seed, stage, epoch, step).

Therefore a training can resume at any step, ranks agree without communication, and all forms of the
step use the same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from squid.data.store import Augment
from squid.methods.base import Method
from squid.nn.noise import NoiseSpec

Chunk = tuple[Tensor | None, Mapping[str, Tensor]]
"""Affine draws and noise of several steps."""

STEPS_AT_ONCE = 16
"""Steps whose numbers are drawn together: a dozen small kernels, and a GPU waits for each."""


@dataclass(frozen=True)
class Draws:
    """What one step needs: which images, how they are moved, and the method's noise."""

    index: Tensor  # (b,)
    affine: Tensor | None  # (b, 3)
    noise: Mapping[str, Tensor]

    def tensors(self) -> list[Tensor]:
        return [self.index, *([] if self.affine is None else [self.affine]), *self.noise.values()]

    def clone(self) -> "Draws":
        affine = None if self.affine is None else self.affine.clone()
        return Draws(self.index.clone(), affine, {n: v.clone() for n, v in self.noise.items()})

    def copy_(self, other: "Draws") -> None:
        """Overwrite these with the draws of another step: CUDA graphs read these tensors."""
        self.index.copy_(other.index)
        mine, others = self.tensors()[1:], other.tensors()[1:]
        if mine:
            torch._foreach_copy_(mine, others)  # one kernel


class Sampler:
    """Makes the draws of one stage. Several ranks draw the same numbers for the joint batch, and
    each takes its share."""

    def __init__(
        self,
        method: Method,
        augment: Augment | None,
        *,
        seed: int,
        stage: int,
        images: int,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._method = method
        self._augment = augment
        self._key = f"{seed}/{stage}"
        self._images = images
        self._device = device
        self._rank, self._world = rank, world
        self._generator = torch.Generator(device)
        self._order: tuple[int, Tensor] | None = None
        self._cached: tuple[tuple[int, int, int], Chunk] | None = None

    def draw(self, epoch: int, step: int, batch_size: int) -> Draws:
        """The draws of one step; `batch_size` counts the images of all ranks."""
        # The order is that of the joint batch, whatever the number of ranks.
        index = self._epoch_order(epoch)[step * batch_size : (step + 1) * batch_size]
        chunk, place = divmod(step, STEPS_AT_ONCE)
        affine, noise = self._chunk(epoch, chunk, batch_size)

        # Every rank draws the numbers of the joint batch and takes its own rows of them.
        def share(values: Tensor) -> Tensor:
            """This rank's part; an incomplete last batch needs fewer rows than there are."""
            needed = values[: len(values) * len(index) // batch_size]
            return needed.tensor_split(self._world)[self._rank]

        return Draws(
            index.tensor_split(self._world)[self._rank],
            None if affine is None else share(affine[place]),
            {name: share(values[place]) for name, values in noise.items()},
        )

    def _chunk(self, epoch: int, chunk: int, b: int) -> Chunk:
        """The draws of `STEPS_AT_ONCE` steps of `b` images, (steps, ...)."""
        # Seeded by its place alone, so that a resumed training can begin at any chunk.
        if self._cached is None or self._cached[0] != (epoch, chunk, b):
            self._generator.manual_seed(_number(f"{self._key}/{epoch}/{chunk}"))
            affine = None
            if self._augment:
                many = self._augment.draw(STEPS_AT_ONCE * b, self._generator, self._device)
                affine = many.view(STEPS_AT_ONCE, b, -1)
            noise = {name: self._noise(spec) for name, spec in self._method.noise(b).items()}
            self._cached = (epoch, chunk, b), (affine, noise)
        return self._cached[1]

    def _epoch_order(self, epoch: int) -> Tensor:
        """(n,): the training images in the order of that epoch."""
        if self._order is None or self._order[0] != epoch:
            generator = self._generator.manual_seed(_number(f"{self._key}/{epoch}"))
            order = torch.randperm(self._images, generator=generator, device=self._device)
            self._order = epoch, order
        return self._order[1]

    def _noise(self, spec: NoiseSpec) -> Tensor:
        # On the device itself, since copying numbers to it would wait for it.
        values = torch.empty((STEPS_AT_ONCE, *spec.shape), device=self._device)
        if spec.kind == "bernoulli":
            values.bernoulli_(spec.probability, generator=self._generator)
        elif spec.kind == "normal":
            values.normal_(generator=self._generator)
        else:
            values.uniform_(generator=self._generator)
        return values


def _number(text: str) -> int:
    """A seed of 56 bits; neighbouring epochs and steps get unrelated ones."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
