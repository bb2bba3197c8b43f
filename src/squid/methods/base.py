"""The interface of a method: what the training loop runs and what the detector calls.

`Method.stages` describes the training as data (`Stage`, `Objective`), so that one loop serves all
methods; `Method.score` and its siblings are pure functions of images.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from squid.config import Config
from squid.errors import RunError
from squid.nn.noise import NoiseSpec
from squid.nn.preprocess import Preprocess, preprocess

Shared = Mapping[str, Any]
"""Results of one forward pass that several objectives use."""


MAX_MEMBERS = 100
"""Networks that are trained one after the other, as members of an ensemble or parts of a fusion."""


class OptimizerConfig(Config):
    """One optimiser with its learning-rate schedule, which advances once an epoch."""

    kind: Literal["adam", "sgd", "rmsprop"] = "adam"
    lr: float = 1e-4
    final_lr: float | None = None
    """Rate at the end of the schedule; the same as `lr` when left out."""
    schedule: Literal["constant", "cosine", "halving", "poly"] = "constant"
    """`halving` halves the rate every `period`; `poly` falls to zero as
    (1 - progress) ** 0.9."""
    period: int | None = None
    """Epochs until the end of a cosine or poly, or between halvings; those of the stage when left
    out."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    """L2 in the gradient, not decoupled."""
    clip: float | None = None
    """Largest gradient norm."""


@dataclass(frozen=True)
class Batch:
    """The inputs of a loss. They are made outside the compiled step, so that tests and ranks can
    inject every random number."""

    images: Tensor
    """(b, 1, h, w) in [0, 1]."""
    index: Tensor
    """(b,) index of each image in the training set."""
    noise: Mapping[str, Tensor]
    """The random numbers that `Method.noise` declares."""


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
    """The update happens in every n-th step of an epoch, from the first on."""
    concurrent: Callable[[Batch, Shared], Shared] | None = None
    """A forward pass that only this objective needs after the shared one. A GPU computes it while
    the objectives before it are updated; its results are added to `Shared`."""
    after: Callable[[], None] | None = None
    """Called right after its update, to commit a queue or move an average. Convolutions may hold
    copies of their weights meanwhile (`train/bf16.py`), so it may change buffers only."""
    compilable: bool = True
    """False where torch.compile fails (double backward) or gives wrong numbers."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Objectives applied in order to each batch, for a number of epochs or a number of steps
    (exactly one of the two)."""

    name: str
    objectives: tuple[Objective, ...]
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    drop_last: bool = True
    """Whether an incomplete last batch of an epoch is left out."""
    augmented: bool = True
    """Whether images are augmented, if the training's settings enable it."""
    epoch_steps: int | None = None
    """The most steps an epoch has; images beyond them are left to the order of a later epoch."""
    shared: Callable[[Batch, frozenset[str]], Shared] | None = None
    """One forward pass for several objectives; it gets the names of those active in this step."""
    after: Callable[[], None] | None = None
    """Called at the end of each step, when every gradient has been computed."""
    prepare: Callable[[Iterable[Batch]], None] | None = None
    """Called before the stage (centres, k-means) ..."""
    every_epochs: int | None = None
    """... and again after every `every_epochs` epochs. The batches are not augmented, hold no noise
    and can be iterated repeatedly; the precision is that of the steps."""
    snapshots: bool = True
    """Whether snapshots are taken, if the training's settings enable them: not before the method
    can score, nor where the score does not change."""
    member: "Method | None" = None
    """The member of an ensemble that it trains; a snapshot is of that one alone."""

    def steps_per_epoch(self, images: int) -> int:
        whole, rest = divmod(images, self.batch_size)
        steps = max(1, whole if self.drop_last or not rest else whole + 1)
        return min(steps, self.epoch_steps or steps)

    def epochs_over(self, images: int) -> int:
        """Epochs on so many images; the last may be incomplete where a stage has `steps`."""
        return self.epochs or math.ceil((self.steps or 0) / self.steps_per_epoch(images))


class MethodConfig(Config):
    """The settings that all methods have."""

    name: str
    size: Annotated[int, Field(ge=1, le=4096)] = 128
    """Side of the square input image, in pixels: data is resized to it."""
    members: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] = 1
    """Size of an ensemble: its members are trained one after the other and their scores averaged.
    Scores of a single training depend more on chance."""
    preprocess: tuple[Preprocess, ...] = ()
    """What removes exposure or sharpness from each image before the method sees it, in this
    order: `equalise` (pixels become their ranks), `standardise` (mean and spread of an image),
    `flatten_spectrum` (equal sharpness), `min_max` (darkest and brightest pixel)."""


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


class Method(nn.Module):
    """An algorithm as a network with its objectives.

    `score`, `heatmap` and `reconstruct` are called in eval mode under no_grad (never
    inference_mode), change no state and treat each image on its own, so that the score of an image
    does not depend on its batch; only with `scored_together` it does.
    """

    Config: ClassVar[type[MethodConfig]]
    title: ClassVar[str]
    """The name in tables."""
    paper: ClassVar[str]
    """Authors, venue and year, then its arXiv number or DOI."""
    training_only: tuple[str, ...] = ()
    """Prefixes of state that scoring does not need (a teacher): left out of the model file."""
    fits_images: bool = False
    """Whether scoring fits something to each image by gradient descent: no ONNX graph can do so."""
    scored_together: int | None = None
    """How many images normalise each other where scores depend on the batch: they are scored in
    batches of so many, in random order."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Loads a state. What is not in it keeps its value, and an empty buffer takes the shape
        that was fitted."""
        own = self.state_dict(keep_vars=True)
        # A buffer whose shape depends on the data is registered empty; make room for it.
        for name, value in state.items():
            if name in own and own[name].numel() == 0:
                own[name].data = own[name].new_empty(value.shape)
        # What scoring needs must be there, of the right shape and type; training-only state may be
        # absent.
        wrong = [n for n, value in state.items() if n not in own or not _alike(own[n], value)]
        needed = [name for name in own if not name.startswith(self.training_only)]
        wrong += [name for name in needed if name not in state]
        if wrong:
            raise RunError(
                f"The weights do not belong to this recipe: '{wrong[0]}' does not match."
            )
        self.load_state_dict(dict(state), strict=False)

    def prepare(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) in [0, 1] -> the same, as the other functions take images: callers prepare
        them, in training and in scoring alike."""
        config: Any = self.config  # each method declares its own class of settings
        with torch.no_grad():
            return preprocess(images, config.preprocess)

    def begin(self, images: int) -> None:
        """Called before `stages()` with the number of training images."""

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """Declares the random numbers of a batch of `b` images."""
        return {}

    def stages(self) -> tuple[Stage, ...]:
        """The training, in order; `()` for a method fitted in closed form by `finalize`."""
        return ()

    def finalize(self, batches: Iterable[Batch]) -> None:
        """Fits what needs the whole training set (Gaussians, features for nearest neighbours),
        after the last stage and before a snapshot. The batches are not augmented and can be
        iterated repeatedly."""

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
