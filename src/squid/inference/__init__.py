"""What computes the scores of images: torch on either device, or ONNX Runtime on the CPU."""

from typing import Protocol

from torch import Tensor
from torch import device as TorchDevice  # here the name `torch` is our own module's

from squid.config import Backend, Device, Precision
from squid.errors import ConfigError, RunError
from squid.inference.onnx import (
    OnnxBackend,
    can_export,
    export_onnx,
    exportable,
    refuse_unexportable,
)
from squid.inference.torch import TorchBackend
from squid.methods.base import Method
from squid.run import Run
from squid.train.engine import pick_device


class ScoringBackend(Protocol):
    """What the detector needs from a backend."""

    @property
    def name(self) -> str:
        """`torch` or `onnx`."""
        ...

    def prepare(self, images: int) -> None:
        """Get ready to score so many images, before threads begin to decode them."""
        ...

    def score(self, pixels: Tensor) -> Tensor:
        """(b, 1, h, w) uint8 -> (b,), perhaps still on the device."""
        ...


def open_backend(
    method: Method,
    size: int,
    device: TorchDevice,
    *,
    backend: Backend = "auto",
    precision: Precision = "float32",
    compile: bool = False,
    run: Run | None = None,
) -> ScoringBackend:
    """The backend of that name.

    `auto` takes the ONNX file of the run, if there is one, on a CPU in float32, and torch
    otherwise; it writes no file, because which backend is faster depends on the CPU. `onnx` writes
    the file first if it is missing, and checks it against torch.
    """
    # Chosen by name it must work: the file is written here, or an error says why it cannot be.
    if backend == "onnx":
        if run is None or precision == "bf16":
            remedy = "save the detector first" if run is None else "leave --precision out"
            raise ConfigError(f"Backend onnx needs a run folder and float32; {remedy}.")
        refuse_unexportable(method)
        if run.onnx is None:
            with run.only_writer():
                export_onnx(method, run.path_of_onnx, size=size, weights=run.digest)
                run.keep_onnx()
        return _of_these_weights(run, method, size)
    # ONNX Runtime gives torch's scores in float32 on a CPU only; any other setting means torch.
    plain = device.type == "cpu" and precision == "float32" and not compile
    wanted = run is not None and backend == "auto" and plain and can_export() and exportable(method)
    if wanted and run is not None and run.onnx is not None:
        return _of_these_weights(run, method, size)
    return TorchBackend(method, size, device, precision=precision, compile=compile)


def _of_these_weights(run: Run, method: Method, size: int) -> OnnxBackend:
    """The run's ONNX file, which must have been made from the weights beside it: it says so, and
    scores as they do."""
    backend = OnnxBackend(run.path_of_onnx)
    if backend.weights != run.digest:
        raise RunError(
            f"{run.path_of_onnx} was not made from the weights of this run; remove it, and "
            "--backend onnx makes it anew."
        )
    backend.check_scores(method, size)
    return backend


def scoring_device(device: Device | TorchDevice, backend: Backend) -> TorchDevice:
    """The device to score on; ONNX Runtime is used on the CPU only."""
    found = pick_device("cpu" if (device, backend) == ("auto", "onnx") else device)
    if backend == "onnx" and found.type != "cpu":
        raise ConfigError("Backend onnx scores on the CPU; use --device cpu or --backend torch.")
    return found
