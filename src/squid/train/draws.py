"""Every random draw of a training, as a pure function of (seed, stage, epoch, step).

So a training resumes at any step, ranks agree without talking, and all forms of the step see the
same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from squid.data.cache import Augment
from squid.methods.base import Method, NoiseSpec


@dataclass(frozen=True)
class Draws:
    """What one step needs: which images, how they are moved, and the method's noise."""

    index: Tensor  # (b,)
    affine: Tensor | None  # (b, 3)
    noise: Mapping[str, Tensor]

    def tensors(self) -> list[Tensor]:
        return [self.index, *([] if self.affine is None else [self.affine]), *self.noise.values()]


class Dice:
    """Draws for one stage; with several ranks each takes its share of the joint batch's draws."""

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

    def draw(self, epoch: int, step: int, batch_size: int) -> Draws:
        """The draws of one step; `batch_size` counts the images of all ranks."""
        index = self._epoch_order(epoch)[step * batch_size : (step + 1) * batch_size]
        b = len(index)
        generator = self._generator.manual_seed(_number(f"{self._key}/{epoch}/{step}"))
        affine = self._augment.draw(b, generator, self._device) if self._augment else None
        noise = {name: self._noise(spec) for name, spec in self._method.noise(b).items()}
        return Draws(self._share(index), None if affine is None else self._share(affine), noise)

    def _epoch_order(self, epoch: int) -> Tensor:
        if self._order is None or self._order[0] != epoch:
            generator = self._generator.manual_seed(_number(f"{self._key}/{epoch}"))
            order = torch.randperm(self._images, generator=generator, device=self._device)
            self._order = epoch, order
        return self._order[1]

    def _noise(self, spec: NoiseSpec) -> Tensor:
        values = torch.empty(spec.shape, device=self._device)
        if spec.kind == "bernoulli":
            values.bernoulli_(spec.probability, generator=self._generator)
        elif spec.kind == "normal":
            values.normal_(generator=self._generator)
        else:
            values.uniform_(generator=self._generator)
        return self._share(values)

    def _share(self, values: Tensor) -> Tensor:
        return values.tensor_split(self._world)[self._rank]


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
