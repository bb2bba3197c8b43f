"""Scoring by ONNX Runtime: a method as one file, images in, scores and reconstructions out.

`export_onnx` writes the file and checks it against torch; `OnnxBackend` scores with it. The file
may come from someone else, so it is looked at before it is run.
"""

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
from torch.nn import functional as F

from squid.data.pixels import to_unit
from squid.durable import replacing
from squid.errors import MissingExtra, RunError, SquidError
from squid.inference.batches import BATCH_SIZE, score_in_batches
from squid.methods.base import Method

NEEDED = ("onnx", "onnxscript", "onnxruntime")
WEIGHTS = "squid.weights"
"""Key of the file's metadata for the digest of the weights that it was made from."""
TOLERANCE = 1e-3
"""Largest difference between ONNX Runtime and torch, as a share of the largest value."""
SCORE_TOLERANCE = 1e-2
"""The same of scores when a file is opened, perhaps by another processor than that of its export;
also of scores that are all small, so that a constant is none of them."""
FLOATS = ("tensor(float)", "tensor(double)")
ANEW = "remove it, and --backend onnx makes it anew."


class ExportError(SquidError):
    """A method cannot be exported, or its file gives other results than the method."""


class OnnxBackend:
    """An exported method on the CPU, with as many threads as torch would use."""

    name = "onnx"

    def __init__(self, path: Path | str) -> None:
        _require("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # fatal: other errors are raised, too
        self._path = path
        try:
            if find_spec("onnx") is not None:
                _refuse_nested(os.fspath(path))
            self._session = onnxruntime.InferenceSession(
                os.fspath(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # on broken bytes ONNX Runtime raises many kinds
            raise RunError(f"{path} cannot be opened by ONNX Runtime; {ANEW}") from error
        self._check_ends()

    def _check_ends(self) -> None:
        """An error where images do not go in, or scores do not come out, as in an export."""
        given, made = self._session.get_inputs(), self._session.get_outputs()
        ends = [(one.name, len(one.shape)) for one in (*given, *made)]
        export = [("images", 4), ("score", 1), ("reconstruction", 4)]
        floats = all(one.type in FLOATS for one in (*given, *made))
        if len(given) != 1 or ends not in (export[:2], export) or not floats:
            raise RunError(f"{self._path} has other inputs or outputs than an export; {ANEW}")

    def check_scores(self, method: Method, size: int) -> None:
        """An error where it does not score as the method, which is in eval mode on the CPU."""
        images = _random_images(size)[: BATCH_SIZE["cpu"]]
        with torch.no_grad():
            expected = method.score(method.prepare(images))
        difference = float((self.run(images, "score")["score"] - expected).abs().max())
        # Written so that a difference of NaN is refused as well.
        if not difference <= SCORE_TOLERANCE * float(expected.abs().max()):
            raise RunError(
                f"{self._path} does not score as the weights of this run do (they differ by "
                f"{difference:.2g}); {ANEW[:-1]}, or use --backend torch."
            )

    @property
    def weights(self) -> str:
        """SHA-256 of the weights that it was made from; '' where it does not say."""
        about: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        return about.get(WEIGHTS, "")

    def prepare(self, images: int) -> None:
        """Nothing to do: an open session is ready for any number of images."""

    def score(self, pixels: Tensor) -> Tensor:
        """(b, 1, h, w) uint8 -> (b,)."""
        return score_in_batches(self._score_batch, pixels, BATCH_SIZE["cpu"])

    def _score_batch(self, pixels: Tensor) -> Tensor:
        return self.run(to_unit(pixels), "score")["score"]

    def run(self, images: Tensor, *outputs: str) -> dict[str, Tensor]:
        """(b, 1, h, w) in [0, 1] -> the named outputs of the file, or all of them: `score` (b,) and
        `reconstruction` (b, 1, h, w) where the method has one."""
        names = list(outputs) or [output.name for output in self._session.get_outputs()]
        try:
            values = self._session.run(names, {"images": images.float().cpu().numpy()})
        except Exception as error:  # of many kinds; their words hold the colours of a terminal
            raise RunError(
                f"{self._path} cannot be run by ONNX Runtime; {ANEW[:-1]}, or use --backend torch."
            ) from error
        shapes = {"score": images.shape[:1], "reconstruction": images.shape}
        for name, value in zip(names, values, strict=True):
            if value.shape != shapes[name]:
                raise RunError(
                    f"{self._path} gives values of shape {value.shape} for '{name}' of "
                    f"{len(images)} images; {ANEW}"
                )
        return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def _refuse_nested(path: str) -> None:
    """An error where a node holds a graph of its own (a loop, a branch): no export has one, and a
    loop may have no end."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    parts = (model.graph, *model.functions)
    if any(one.HasField("g") or one.graphs for p in parts for n in p.node for one in n.attribute):
        raise ValueError("a graph within the graph")


def exportable(method: Method) -> bool:
    """Whether the method's score is one graph, the same for each image: not where it fits
    something to each image, nor where images normalise each other."""
    return not method.fits_images and method.scored_together is None


def refuse_unexportable(method: Method) -> None:
    """An error where no file can hold the method's score."""
    if not exportable(method):
        raise ExportError(
            f"{type(method).__name__} fits something to each image or scores images by each "
            "other, which ONNX cannot hold; use --backend torch."
        )


def can_export() -> bool:
    """Whether the packages that an export needs are installed."""
    return all(find_spec(package) for package in NEEDED)


def export_onnx(
    method: Method,
    path: Path | str,
    *,
    size: int,
    images: Tensor | None = None,
    weights: str = "",
) -> float:
    """Write `path` and give the largest difference from torch, over `images` (b, 1, size, size) in
    [0, 1] or random ones; a file that differs too much is not left behind. `weights` is the digest
    of the method's weights, which the file keeps."""
    _require(*NEEDED)
    refuse_unexportable(method)
    graph = _Graph(method, size)
    # Under another name until it is checked: `path` itself is always a file that can be used.
    with replacing(Path(path)) as partial:
        _write(graph, partial, size, weights)
        examples = _random_images(size) if images is None else images.float().cpu()
        return _check(graph, OnnxBackend(partial), examples)


class _Graph(nn.Module):
    """What the file computes: a copy of the method in float32 and plain memory layout."""

    def __init__(self, method: Method, size: int) -> None:
        super().__init__()
        self.method = copy.deepcopy(method).cpu().float().eval()
        self.method.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        with torch.no_grad():
            self.reconstructs = self.method.reconstruct(torch.zeros(1, 1, size, size)) is not None

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        images = self.method.prepare(images)
        score = self.method.score(images)
        reconstruction = self.method.reconstruct(images) if self.reconstructs else None
        return (score,) if reconstruction is None else (score, reconstruction)


def _write(graph: _Graph, path: Path, size: int, weights: str) -> None:
    names = ["score", "reconstruction"] if graph.reconstructs else ["score"]
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                graph,
                (torch.rand(2, 1, size, size),),
                dynamo=True,
                input_names=["images"],
                output_names=names,
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        name = type(graph.method).__name__
        raise ExportError(f"{name} cannot be written as ONNX; use --backend torch.") from error
    assert program is not None
    program.model.metadata_props[WEIGHTS] = weights
    program.save(path)


def _check(graph: _Graph, backend: OnnxBackend, images: Tensor) -> float:
    """The largest difference of scores and reconstructions, for one image and for all together."""
    largest = 0.0
    for batch in (images[:1], images):
        with torch.no_grad():
            expected = graph(batch)
        for ours, theirs in zip(expected, backend.run(batch).values(), strict=True):
            difference, scale = float((ours - theirs).abs().max()), float(ours.abs().max())
            # Written so that a difference of NaN is refused as well.
            if not difference <= TOLERANCE * max(scale, 1.0):
                raise ExportError(
                    f"ONNX Runtime and torch differ by {difference:.2g}; use --backend torch."
                )
            largest = max(largest, difference)
    return largest


def _random_images(size: int) -> Tensor:
    """(8, 1, size, size): clouds with a little noise. In noise alone all patches would look alike,
    and a memory's choice between slots would depend on the last digit."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(8, 1, max(size // 8, 2), max(size // 8, 2), generator=generator)
    noise = torch.rand(8, 1, size, size, generator=generator)
    return 0.9 * F.interpolate(coarse, (size, size), mode="bilinear") + 0.1 * noise


def _require(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, "export")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings about its own future and about packages it does not need."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
