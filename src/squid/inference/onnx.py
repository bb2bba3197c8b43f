"""A method as one ONNX file: images in, score and reconstruction out, checked against torch."""

import copy
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from squid.errors import MissingExtra, SquidError
from squid.methods.base import Method

NEEDED = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-3
"""Of the largest value, for the difference between ONNX Runtime and torch."""


class ExportError(SquidError):
    """A method cannot be exported, or its file does not say what the method says."""


class OnnxScorer:
    """Scores images with ONNX Runtime on the CPU, with as many threads as torch would use."""

    def __init__(self, path: Path | str) -> None:
        _require("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(
            os.fspath(path), options, providers=["CPUExecutionProvider"]
        )
        self.draws = any(out.name == "reconstruction" for out in self._session.get_outputs())

    def score(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) in [0, 1] -> (b,)."""
        return self._run("score", images)

    def reconstruct(self, images: Tensor) -> Tensor | None:
        """(b, 1, h, w) -> (b, 1, h, w); None where the method draws nothing."""
        return self._run("reconstruction", images) if self.draws else None

    def _run(self, output: str, images: Tensor) -> Tensor:
        values = self._session.run([output], {"images": images.float().cpu().numpy()})
        return torch.from_numpy(values[0])


def exportable(method: Method) -> bool:
    """Whether the method's score is one graph: not where it fits something to each image."""
    return not method.fits_images


def can_export() -> bool:
    """Whether what an export needs is installed."""
    return all(find_spec(package) for package in NEEDED)


def export_onnx(
    method: Method, path: Path | str, *, size: int, images: Tensor | None = None
) -> float:
    """Write `path` and give the largest difference from torch, over `images` (b, 1, size, size) or
    random ones; a file that differs too much is not left behind."""
    _require(*NEEDED)
    if not exportable(method):
        raise ExportError(
            f"{type(method).__name__} fits something to each image, which ONNX cannot hold; "
            "use --backend torch."
        )
    partial = Path(f"{path}.part")
    scoring = _Scoring(method, size)
    try:
        _write(scoring, partial, size)
        difference = _check(scoring, OnnxScorer(partial), _examples(images, size))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return difference


class _Scoring(nn.Module):
    """What the file computes; a copy in float32 and plain layout."""

    def __init__(self, method: Method, size: int) -> None:
        super().__init__()
        self.method = copy.deepcopy(method).cpu().float().eval()
        self.method.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        with torch.no_grad():
            self.draws = self.method.reconstruct(torch.zeros(1, 1, size, size)) is not None

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        score = self.method.score(images)
        reconstruction = self.method.reconstruct(images) if self.draws else None
        return (score,) if reconstruction is None else (score, reconstruction)


def _write(scoring: _Scoring, path: Path, size: int) -> None:
    names = ["score", "reconstruction"] if scoring.draws else ["score"]
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                scoring,
                (torch.rand(2, 1, size, size),),
                dynamo=True,
                input_names=["images"],
                output_names=names,
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        name = type(scoring.method).__name__
        raise ExportError(f"{name} cannot be written as ONNX; use --backend torch.") from error
    assert program is not None
    program.save(path)


def _check(scoring: _Scoring, scorer: OnnxScorer, images: Tensor) -> float:
    """The largest difference, one by one and together, of scores and reconstructions."""
    largest = 0.0
    for batch in (images[:1], images):
        with torch.no_grad():
            expected = scoring(batch)
        found = [scorer.score(batch), scorer.reconstruct(batch)]
        for ours, theirs in zip(expected, found, strict=False):
            assert theirs is not None
            difference, scale = float((ours - theirs).abs().max()), float(ours.abs().max())
            if not difference <= TOLERANCE * max(scale, 1.0):
                raise ExportError(
                    f"ONNX Runtime and torch differ by {difference:.2g}; use --backend torch."
                )
            largest = max(largest, difference)
    return largest


def _examples(images: Tensor | None, size: int) -> Tensor:
    if images is not None:
        return images.float().cpu()
    return torch.rand(8, 1, size, size, generator=torch.Generator().manual_seed(0))


def _require(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, "export")


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own future and of packages that are not needed."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
