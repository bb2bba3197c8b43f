"""One update of a stage: plain, compiled, replayed as a CUDA graph, or both; the maths is the same.

Every form takes the same `Draws`, so they see the same images, augmentation and masks. Nothing here
waits for the device.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from squid.data.store import ImageStore
from squid.errors import ConfigError
from squid.methods.base import Batch, Method, Objective, Shared, Stage
from squid.nn.conv import at_least_float32
from squid.nn.ranks import Ranks
from squid.nn.streams import Concurrent
from squid.train.adam import FusedAdam
from squid.train.bf16 import Bf16Weights, widened
from squid.train.engine import Engine, compile_fused
from squid.train.optimizers import build_optimizer
from squid.train.sampler import Draws

Switch = Literal["auto"] | bool
Active = tuple[bool, ...]
"""Which objectives of the stage are updated in a step."""

LONG = 30_000
"""Steps over which compiling has paid for itself: SQUID's takes 100 s and saves 3.4 ms a step."""
EAGER_STEPS_BEFORE_CAPTURE = 3
"""Real steps that fill caches, create optimiser state and let torch.compile finish, before the
capture of a graph."""


class StepForm(NamedTuple):
    """How a step runs."""

    compile: bool
    """Kernels made by torch.compile, which takes a minute or two."""
    cuda_graph: bool
    """One CUDA graph, replayed as one launch."""


def pick_form(
    compile: Switch,
    cuda_graph: Switch,
    device: torch.device,
    *,
    steps: int,
    world: int = 1,
    on_device: bool = True,
) -> StepForm:
    """`auto` is the faster choice for so many steps: compiled on a GPU where that pays, a CUDA
    graph where one GPU holds the images."""
    gpu = device.type == "cuda"
    # A graph holds no exchange between processes, and no copy from the host.
    replayable = gpu and world == 1 and on_device
    if cuda_graph is True and not gpu:
        raise ConfigError("train.cuda_graph needs a CUDA device; leave it out.")
    if cuda_graph is True and not replayable:
        raise ConfigError("train.cuda_graph needs one GPU that holds all images; leave it out.")
    return StepForm(
        compile=(gpu and steps >= LONG) if compile == "auto" else compile,
        cuda_graph=replayable if cuda_graph == "auto" else cuda_graph,
    )


class Step:
    """The update of one stage; loss terms are summed on the device in `totals`."""

    def __init__(
        self,
        method: Method,
        stage: Stage,
        store: ImageStore,
        engine: Engine,
        *,
        compiled: bool,
        capturable: bool,
    ) -> None:
        self.stage = _compiled(stage) if compiled else stage
        # The shared pass always serves all objectives once it is compiled: computing what an
        # inactive one needs takes less time than compiling the pass again without it.
        self.all_names = frozenset(o.name for o in stage.objectives) if compiled else None
        self.concurrent = {
            o.name: Concurrent(o.concurrent, engine.device, number)
            for number, o in enumerate(self.stage.objectives)
            if o.concurrent is not None
        }
        self.bf16_weights = Bf16Weights(method) if engine.precision == "bf16" else None
        self.prepare = (stage.member or method).prepare
        self.engine = engine
        self.ranks = engine.ranks
        self.optimizers = [
            build_optimizer(
                o.optimizer,
                o.parameters,
                capturable=capturable,
                fused_adam=compiled and self.ranks.alone,
            )
            for o in stage.objectives
        ]
        self.batch = compile_fused(store.batch) if compiled and store.on_device else store.batch
        self.totals: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}  # of each objective's terms; `totals` are views of them
        self._begin: Mapping[str, float] = {}

    def __call__(self, draws: Draws, active: Active) -> None:
        with self.bf16_weights.swapped_in() if self.bf16_weights else nullcontext():
            self._step(draws, active)

    def _step(self, draws: Draws, active: Active) -> None:
        images = self.prepare(self.batch(draws.index, draws.affine))  # (b, 1, h, w)
        batch = Batch(images, draws.index, draws.noise)
        # An objective that is updated in every n-th step only is left out of the others.
        pairs = zip(self.stage.objectives, self.optimizers, active, strict=True)
        updated = [(objective, optimizer) for objective, optimizer, on in pairs if on]
        shared, started = self._forward(batch, [objective for objective, _ in updated])
        # One after the other, in the stage's order: later ones meet the updated weights.
        for place, (objective, optimizer) in enumerate(updated):
            if objective.name in started:
                joined = self.concurrent[objective.name].join(started[objective.name])
                shared = {**shared, **joined}
            # The graph of the shared pass is freed by the last objective that needs it.
            keep = self.stage.shared is not None and place < len(updated) - 1
            self._update(objective, optimizer, batch, shared, keep_graph=keep)
        if self.stage.after is not None:
            self.stage.after()

    def _forward(
        self, batch: Batch, objectives: Sequence[Objective]
    ) -> tuple[Shared, dict[str, Shared]]:
        """The shared pass, and by objective what its concurrent function has begun to compute."""
        with self.engine.autocast():
            names = self.all_names or frozenset(o.name for o in objectives)
            shared: Shared = self.stage.shared(batch, names) if self.stage.shared else {}
            started = {
                o.name: self.concurrent[o.name].start(batch, shared)
                for o in objectives
                if o.name in self.concurrent
            }
        return shared, started

    def _update(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        batch: Batch,
        shared: Shared,
        *,
        keep_graph: bool,
    ) -> None:
        with self.engine.autocast():
            terms = objective.loss(batch, shared)
        values = torch.stack([at_least_float32(term) for term in terms.values()])
        parameters = objective.parameters
        # The weights that computed the loss, and so have the gradients, may be bf16 copies.
        learning = self.bf16_weights.of(parameters) if self.bf16_weights else parameters
        gradients = torch.autograd.grad(values.sum(), learning, retain_graph=keep_graph)
        # The fused optimiser also writes the bf16 copies, while it has the new weights at hand.
        values = values.detach()
        if isinstance(optimizer, FusedAdam):
            copies = [w if w is not p else None for w, p in zip(learning, parameters, strict=True)]
            optimizer.step_from(gradients, copies)
        else:
            self._step_optimizer(objective, optimizer, gradients, values)
        if objective.after is not None:
            objective.after()
        self._sum_of(objective.name, list(terms)).add_(values)

    def _step_optimizer(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        gradients: Sequence[Tensor],
        values: Tensor,
    ) -> None:
        parameters = objective.parameters
        wide = widened(gradients) if self.bf16_weights else list(gradients)
        # Loss values travel with the gradients: one reduction instead of two.
        average_over_ranks([*wide, values], self.ranks)
        for parameter, gradient in zip(parameters, wide, strict=True):
            parameter.grad = laid_out_like(parameter, gradient)
        if objective.optimizer.clip is not None:
            nn.utils.clip_grad_norm_(parameters, objective.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.bf16_weights is not None:
            self.bf16_weights.refresh(parameters)

    def begin_epoch(self, totals: Mapping[str, float]) -> None:
        """Set the sums to zero, or to the `totals` of an epoch that goes on; in place, because
        CUDA graphs add to these tensors."""
        # Between epochs, `prepare` and snapshots may have changed the float32 weights.
        if self.bf16_weights is not None:
            self.bf16_weights.refresh()
        self._begin = totals
        for name, total in self.totals.items():
            total.fill_(totals.get(name, 0.0))

    def _sum_of(self, objective: str, terms: Sequence[str]) -> Tensor:
        """(terms,) sums of the loss terms so far in this epoch."""
        if objective not in self._sums:
            names = [f"{objective}.{term}" for term in terms]
            begin = [self._begin.get(name, 0.0) for name in names]
            sums = torch.tensor(begin, dtype=torch.float64, device=self.engine.device)
            self._sums[objective] = sums
            self.totals.update(zip(names, sums.unbind(), strict=True))
        return self._sums[objective]


class ReplayedStep(Step):
    """The update as CUDA graphs, one for each set of active objectives and each batch size: one
    launch replays all of it."""

    def __init__(
        self, method: Method, stage: Stage, store: ImageStore, engine: Engine, *, compiled: bool
    ) -> None:
        super().__init__(method, stage, store, engine, compiled=compiled, capturable=True)
        self._eager_steps: dict[tuple[Active, int], int] = {}
        self._graphs: dict[tuple[Active, int], tuple[torch.cuda.CUDAGraph, Draws]] = {}
        self._stream = torch.cuda.Stream(engine.device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, draws: Draws, active: Active) -> None:
        key = active, len(draws.index)
        done = self._eager_steps.get(key, 0)
        if done < EAGER_STEPS_BEFORE_CAPTURE:
            self._eager_steps[key] = done + 1
            self._warm_up(draws, active)
        else:
            if key not in self._graphs:
                self._graphs[key] = self._capture(draws, active)
            graph, static = self._graphs[key]
            static.copy_(draws)
            graph.replay()

    def _warm_up(self, draws: Draws, active: Active) -> None:
        """A real step, on the stream that will capture, so that caches belong to that stream."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            super().__call__(draws, active)
        current.wait_stream(self._stream)

    def _capture(self, draws: Draws, active: Active) -> tuple[torch.cuda.CUDAGraph, Draws]:
        # A graph reads fixed addresses: every replay finds its draws copied into these tensors.
        static = draws.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            super().__call__(static, active)
        return graph, static


def make_step(
    form: StepForm, method: Method, stage: Stage, store: ImageStore, engine: Engine
) -> Step:
    """The step of a method's stage in that form."""
    if form.compile and engine.device.type == "cuda":
        # 0 is no limit: a training long enough to compile is worth trying all kernels.
        torch.backends.cudnn.benchmark_limit = 0
    if form.cuda_graph:
        return ReplayedStep(method, stage, store, engine, compiled=form.compile)
    return Step(method, stage, store, engine, compiled=form.compile, capturable=False)


def _compiled(stage: Stage) -> Stage:
    objectives = tuple(
        replace(
            o,
            loss=compile_fused(o.loss) if o.compilable else o.loss,
            concurrent=o.concurrent and compile_fused(o.concurrent),
        )
        for o in stage.objectives
    )
    return replace(
        stage, objectives=objectives, shared=stage.shared and compile_fused(stage.shared)
    )


def laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with the parameter's strides: fused optimisers refuse others."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def average_over_ranks(tensors: Sequence[Tensor], ranks: Ranks) -> None:
    """In place: gradients and losses of the joint batch, from those of equal shares of it."""
    if ranks.alone:
        return
    joint = ranks.mean(torch.cat([t.flatten() for t in tensors]))
    means = torch.split(joint, [t.numel() for t in tensors])
    for tensor, mean in zip(tensors, means, strict=True):
        tensor.copy_(mean.view_as(tensor))


def join_ranks(method: nn.Module, ranks: Ranks) -> None:
    """Give the blocks that mix images of a batch (batch normalisation, the queue) the other
    processes."""
    for module in method.modules():
        if hasattr(module, "ranks"):
            module.ranks = ranks  # type: ignore[assignment]
