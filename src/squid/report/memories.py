"""Inside the memories: where slots lie among the features that read them, and which are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from squid.detector import Detector
from squid.methods.base import Method
from squid.nn.memory import MemoryMatrix, MemoryQueue
from squid.report.style import BLUE, VERMILION, canvas, faint, legend, panels, without_axes

Memory = MemoryQueue | MemoryMatrix
Array = NDArray[np.float32]

_IMAGES = 256
_POINTS = 300  # of features and of slots each: t-SNE's time grows with their square
_PERPLEXITY = 30
_COMPARED = 1000  # features and slots whose nearest feature is looked for


@dataclass(frozen=True)
class MemoryReads:
    """How training images read a memory."""

    name: str
    queue: bool
    """Copies of features; otherwise learned."""
    features: Array  # (t, d)
    slots: Array  # (s, d), of all regions
    use: NDArray[np.float64]  # (r, n): share of a region's reads that a slot takes part in


def memory_reads(detector: Detector, pixels: Tensor, *, seed: int = 0) -> list[MemoryReads]:
    """The reads of every memory while the method scores some of these training images. The detector
    must score with torch; nothing in it is changed."""
    # Some images are enough for shares of reads, and their tokens fit in memory.
    chosen = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(seed))[:_IMAGES]
    tokens: dict[str, list[Tensor]] = {name: [] for name in _memories(detector.method)}
    hooks = [
        memory.register_forward_pre_hook(_keeper(tokens[name]))
        for name, memory in _memories(detector.method).items()
    ]
    # The tokens are recorded on their way into each memory while the detector scores as usual.
    try:
        detector.score(pixels[chosen])
    finally:
        for hook in hooks:
            hook.remove()
    memories = _memories(detector.method)
    return [_reads(memories[path], torch.cat(tokens[path]), _name(path)) for path in memories]


def _memories(method: Method) -> dict[str, Memory]:
    named = method.named_modules()
    return {name: module for name, module in named if isinstance(module, Memory)}


def _keeper(kept: list[Tensor]) -> Callable[[torch.nn.Module, tuple[Tensor, ...]], None]:
    def keep(memory: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        kept.append(inputs[0].detach().float())

    return keep


def _name(path: str) -> str:
    """`student.memories.0.memory` -> "Student memory 1"."""
    # A memory of an ensemble's member has the name that it has in a single training.
    if path.startswith("members."):
        _, number, own = path.split(".", 2)
        return f"{_name(own)}, member {int(number) + 1}"
    if path.startswith("inpainting."):
        return "In-painting block"
    numbers = [str(int(part) + 1) for part in path.split(".") if part.isdigit()]
    return " ".join(["Student memory", *numbers])


def _reads(memory: Memory, tokens: Tensor, name: str) -> MemoryReads:
    """Tokens (b, p, d)."""
    queue = isinstance(memory, MemoryQueue)
    slots = memory.slots.detach().float()  # (r, n, d)
    with torch.no_grad():
        weights = memory.weights(tokens)  # (b, r, n)
    return MemoryReads(
        name=name,
        queue=queue,
        features=tokens.flatten(0, 1).cpu().numpy(),
        slots=slots.flatten(0, 1).cpu().numpy(),
        use=(weights != 0).double().mean(0).cpu().numpy(),
    )


@dataclass(frozen=True)
class Embedded:
    """A memory in the plane."""

    name: str
    queue: bool
    features: Array  # (t, 2)
    slots: Array  # (s, 2)
    distance: float
    """See `slot_distance`; in the space of the features, not in the plane."""


def embed(memory: MemoryReads, *, seed: int = 0) -> Embedded:
    """t-SNE (van der Maaten and Hinton, 2008) of a sample of features and slots together."""
    rng = np.random.default_rng(seed)
    # Both in one embedding: planes of separate ones have nothing in common.
    features, slots = (_sample(points, rng) for points in (memory.features, memory.slots))
    both = np.concatenate([features, slots])
    # t-SNE looks at three neighbours for each unit of perplexity, and a point has len - 1.
    perplexity = min(_PERPLEXITY, (len(both) - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(both)
    return Embedded(
        memory.name,
        memory.queue,
        plane[: len(features)],
        plane[len(features) :],
        slot_distance(memory, seed=seed),
    )


def slot_distance(memory: MemoryReads, *, seed: int = 0) -> float:
    """Mean distance of slots to their nearest feature, in units of that of features to their
    nearest other feature: 0 for copies of these features, about 1 for others of the same kind, more
    for slots that lie apart."""
    rng = np.random.default_rng(seed)
    slots, features = (
        points[rng.permutation(len(points))[:_COMPARED]]
        for points in (memory.slots, memory.features)
    )
    # Every feature is a candidate; the nearest one of a feature is itself, so the second counts.
    known = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(memory.features)
    to_slots = known.kneighbors(slots, n_neighbors=1)[0].mean()
    between = known.kneighbors(features)[0][:, 1].mean()
    return float(to_slots / max(between, np.finfo(np.float32).tiny))


def _sample(points: Array, rng: np.random.Generator) -> Array:
    return points[rng.permutation(len(points))[:_POINTS]]


def memory_map(memories: Sequence[Embedded]) -> Figure:
    """The paper's figure: features of training images, slots of queues and of matrices."""
    figure, grid = panels(len(memories), columns=3, height=3.4)
    for axes, memory in zip(grid, memories, strict=True):
        colour, name = (VERMILION, "queue slots") if memory.queue else (BLUE, "matrix slots")
        axes.plot(*memory.features.T, ".", color=faint(), alpha=0.5, label="training features")
        axes.plot(*memory.slots.T, ".", color=colour, alpha=0.7, label=name)
        axes.set_title(f"{_title(memory)}, distance {memory.distance:.2f}")
        without_axes(axes)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2}
        legend(axes, **below, columnspacing=1.0, handletextpad=0.1)
    return figure


def slot_use(memories: Sequence[MemoryReads]) -> Figure:
    """A row per region, its slots sorted from the most to the least read."""
    heights = [0.9 + 0.2 * len(memory.use) for memory in memories]
    figure = canvas(7.6, sum(heights))
    grid = figure.subplots(len(memories), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, memory in zip(grid, memories, strict=True):
        # Sorted by use, since the order of slots means nothing; masked zeros stay blank.
        ordered = -np.sort(-memory.use, axis=1)  # (r, n)
        read = np.ma.masked_equal(ordered, 0.0)
        image = axes.imshow(read, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
        axes.grid(visible=False)
        axes.set(title=_title(memory), xlabel="Slots, the most read first", ylabel="Region")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_yticks(range(len(ordered)), [_summary(*row) for row in enumerate(ordered)])
        bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=12)
        bar.set_label("share of reads", fontsize=9)
        bar.outline.set_visible(False)
    return figure


def effective_slots(use: NDArray[np.float64]) -> float:
    """(r, n) -> how many equally read slots would be as diverse: the exponential of the entropy, a
    mean over regions."""
    shares = use / use.sum(1, keepdims=True)
    # A share of zero adds nothing, as x log x tends to zero.
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(1)  # (r,)
    return float(np.exp(entropy).mean())


def _summary(region: int, use: NDArray[np.float64]) -> str:
    return f"{region + 1} ({(use > 0).sum()} read)"


def _title(memory: MemoryReads | Embedded) -> str:
    return f"{memory.name}: {'queue' if memory.queue else 'matrix'}"
