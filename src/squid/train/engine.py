"""Devices, precision and processes. The only file that knows Lightning Fabric."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from squid.config import Device, Precision
from squid.errors import ConfigError
from squid.nn.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from lightning_fabric.plugins.precision.precision import _PRECISION_INPUT_STR

P = ParamSpec("P")
T = TypeVar("T")

_FABRIC_PRECISION: "dict[str, _PRECISION_INPUT_STR]" = {"float32": "32-true", "bf16": "bf16-mixed"}


class Engine:
    """Where and how a training computes: device, precision, and the processes that train
    together."""

    def __init__(
        self,
        device: Device = "auto",
        *,
        precision: Precision = "float32",
        devices: int = 1,
        nodes: int = 1,
    ) -> None:
        # Importing it takes a second, which only trainings should wait for.
        from lightning_fabric import Fabric

        # Its notes (which precision, which rank) would precede what is said to the user.
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        accelerator = pick_device(device).type
        # Shapes are fixed, so cuDNN may try out its kernels. Products that stay in float32 in a
        # bf16 training need no more than TF32's digits.
        if accelerator == "cuda":
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high" if precision == "bf16" else "highest")
        if accelerator == "cuda" and devices > torch.cuda.device_count():
            raise ConfigError(
                f"This machine has {torch.cuda.device_count()} GPUs, fewer than {devices}; "
                "lower --devices."
            )
        self.precision = precision
        self._launched = False
        self._fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy="ddp" if devices * nodes > 1 else "auto",
            precision=_FABRIC_PRECISION[precision],
        )

    def launch(self) -> None:
        """Start the other processes if there are to be several; each runs the same command."""
        if not self._launched:
            self._fabric.launch()
            self._launched = True

    @property
    def device(self) -> torch.device:
        return self._fabric.device

    @property
    def rank(self) -> int:
        return self._fabric.global_rank

    @property
    def world(self) -> int:
        return self._fabric.world_size

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints."""
        return self._fabric.is_global_zero

    @property
    def ranks(self) -> Ranks:
        return ALONE if self.world == 1 else _ProcessRanks(self.world)

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision for bf16, nothing for float32; blocks cast to float32 what needs it."""
        return self._fabric.autocast()

    def from_leader(self, make: Callable[[], T]) -> T:
        """What `make` returns on the leading process, on all of them."""
        value = make() if self.leads else None
        return self._fabric.broadcast(value)  # type: ignore[return-value]


def pick_device(device: Device | torch.device) -> torch.device:
    """`auto` is the GPU where there is one."""
    if isinstance(device, torch.device):
        return device
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("No CUDA device is here; use --device cpu.")
    wanted = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def compile_fused(function: Callable[P, T]) -> Callable[P, T]:
    """torch.compile as training steps use it. Combining independent small kernels saves a third of
    a step."""
    return torch.compile(function, dynamic=False, options={"combo_kernels": True})


class _ProcessRanks:
    alone = False

    def __init__(self, size: int) -> None:
        self.size = size

    def mean(self, x: Tensor) -> Tensor:
        return _Mean.apply(x, self.size)  # type: ignore[no-untyped-call, no-any-return]

    def gather(self, x: Tensor) -> Tensor:
        # all_gather wants buffers of the same shape from every rank: shares of a batch are equal.
        x = x.contiguous()
        rows = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(rows, x)
        return torch.cat(rows)


class _Mean(torch.autograd.Function):
    """Mean over processes. Its gradient is, on each process, the mean of all their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: int) -> Tensor:
        ctx.world = world
        return _all_reduce_mean(x, world)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Through the mean, x enters the losses of all ranks, so its gradient is the sum over ranks
        # of d loss / d mean, divided by their number. No further factor is needed: gradients are
        # averaged over ranks later.
        return _all_reduce_mean(gradients[0], ctx.world), None


def _all_reduce_mean(x: Tensor, world: int) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total / world
