"""The one interface: what a method tells the trainer, and what the detector asks of it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from squid.config import Config
from squid.errors import RunError

Shared = Mapping[str, Any]
"""What one forward pass computed for several objectives."""


class OptimizerConfig(Config):
    """One optimiser with its schedule, which moves once an epoch."""

    kind: Literal["adam", "sgd", "rmsprop"] = "adam"
    lr: float = 1e-4
    final_lr: float | None = None
    """Where the schedule ends; the same as `lr` when left out."""
    schedule: Literal["constant", "cosine", "halving", "poly"] = "constant"
    """`halving` halves the rate every `period`; `poly` falls to zero as
    (1 - progress) ** 0.9."""
    period: int | None = None
    """Epochs until the end of a cosine or poly, or between halvings; the stage's when left out."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    """L2 in the gradient, not decoupled."""
    clip: float | None = None
    """Largest gradient norm."""


@dataclass(frozen=True)
class NoiseSpec:
    """A random draw a method needs for each batch. The first axis runs over images (or their
    patches), so ranks can share it."""

    shape: tuple[int, ...]
    kind: Literal["bernoulli", "normal", "uniform"]
    probability: float = 0.5
    """Of a one, for `bernoulli`."""


@dataclass(frozen=True)
class Batch:
    """What a loss sees. It is made outside the compiled step, so that tests and ranks can inject
    every draw."""

    images: Tensor
    """(b, 1, h, w) in [0, 1]."""
    index: Tensor
    """(b,) place of each image in the training set."""
    noise: Mapping[str, Tensor]
    """The draws the method asked for in `noise()`."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One optimiser and its update."""

    name: str
    parameters: Sequence[nn.Parameter]
    """Gradients are taken for these only."""
    loss: Callable[[Batch, Shared], dict[str, Tensor]]
    """Named, weighted scalar terms; their sum is minimised."""
    optimizer: OptimizerConfig
    every: int = 1
    """Updated in every n-th step of an epoch, from the first on."""
    concurrent: Callable[[Batch, Shared], Shared] | None = None
    """What only this objective needs beside the shared pass: a GPU computes it while the objectives
    before it are updated, and its result is added to `Shared`."""
    after: Callable[[], None] | None = None
    """Right after its update: commit the queue, moving averages. Convolutions may hold copies of
    their weights meanwhile (`train/working.py`): what this changes are buffers."""
    compilable: bool = True
    """False where torch.compile cannot go (double backward) or goes wrong."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Objectives applied in order to each batch, for so many epochs or so many steps (exactly one
    of the two)."""

    name: str
    objectives: tuple[Objective, ...]
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    drop_last: bool = True
    """Whether an incomplete last batch of an epoch is left out."""
    augmented: bool = True
    """Whether its images are moved by chance, where the training asks for it."""
    epoch_steps: int | None = None
    """The most steps an epoch has; the images beyond them wait for another epoch's order."""
    shared: Callable[[Batch, frozenset[str]], Shared] | None = None
    """One forward that several objectives use; it is told which of them are active in this step."""
    after: Callable[[], None] | None = None
    """At the end of each step, when every gradient has been taken."""
    prepare: Callable[[Iterable[Batch]], None] | None = None
    """Before the stage (centres, k-means) ..."""
    every_epochs: int | None = None
    """... and again every so many epochs. The batches are not augmented, hold no noise and can be
    iterated repeatedly; the precision is that of the steps."""
    snapshots: bool = True
    """Whether snapshots are taken in it, where the training asks for them: not before the method
    can score, nor where it learns nothing new."""
    member: "Method | None" = None
    """Which of an ensemble it trains; a snapshot is of that one alone."""

    def steps_per_epoch(self, images: int) -> int:
        whole, rest = divmod(images, self.batch_size)
        steps = max(1, whole if self.drop_last or not rest else whole + 1)
        return min(steps, self.epoch_steps or steps)

    def epochs_over(self, images: int) -> int:
        """The last may be incomplete where a stage has so many steps."""
        return self.epochs or math.ceil((self.steps or 0) / self.steps_per_epoch(images))


class MethodConfig(Config):
    """What every method's settings have in common."""

    name: str
    size: int = 128
    """Side of the square input image, in pixels: data is resized to it."""
    members: Annotated[int, Field(ge=1)] = 1
    """Size of an ensemble: its members are trained one after the other and their scores averaged.
    Scores of a single training depend more on chance."""


class Method(nn.Module):
    """An algorithm as a network with its objectives.

    `score`, `heatmap` and `reconstruct` are called in eval mode under no_grad (never
    inference_mode), change no state and treat each image on its own, so that the score of an image
    does not depend on its batch.
    """

    Config: ClassVar[type[MethodConfig]]
    title: ClassVar[str]
    """As the tables write it."""
    paper: ClassVar[str]
    """Authors, venue and year, then its arXiv number or DOI."""
    training_only: tuple[str, ...] = ()
    """Prefixes of state that scoring does not need (a teacher): kept apart from the model file."""
    fits_images: bool = False
    """Whether scoring fits something to each image by gradient descent: no ONNX graph can do so."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load a state; what is not in it keeps its value, and an empty buffer takes the shape that
        was fitted."""
        own = self.state_dict(keep_vars=True)
        for name, value in state.items():
            if name in own and own[name].numel() == 0:
                own[name].data = torch.empty_like(value, device=own[name].device)
        wrong = [n for n, value in state.items() if n not in own or own[n].shape != value.shape]
        needed = [name for name in own if not name.startswith(self.training_only)]
        wrong += [name for name in needed if name not in state]
        if wrong:
            raise RunError(
                f"The weights do not belong to this recipe: '{wrong[0]}' does not match."
            )
        self.load_state_dict(dict(state), strict=False)

    def begin(self, images: int) -> None:
        """Told, before `stages()`, how many training images there are."""

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """What to draw for a batch of `b` images."""
        return {}

    def stages(self) -> tuple[Stage, ...]:
        """The training, in order; `()` for a method fitted in closed form by `finalize`."""
        return ()

    def finalize(self, batches: Iterable[Batch]) -> None:
        """Over the training set without augmentation, after the last stage and before a snapshot:
        Gaussians, stored features of nearest neighbours. The batches can be iterated repeatedly."""

    def score(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b,), higher = more anomalous."""
        raise NotImplementedError

    def heatmap(self, images: Tensor) -> Tensor | None:
        """(b, 1, h, w) -> (b, h, w), higher = more anomalous; None where the method has no map of
        its own."""
        return None

    def reconstruct(self, images: Tensor) -> Tensor | None:
        """(b, 1, h, w) -> (b, 1, h, w) in [0, 1]; None where the method reconstructs nothing."""
        return None
