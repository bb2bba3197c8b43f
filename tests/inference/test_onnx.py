"""Every method gives the same scores in ONNX as in torch, at any batch size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from squid.data.pixels import to_unit
from squid.errors import MissingExtra, RunError
from squid.inference.onnx import (
    ExportError,
    OnnxBackend,
    can_export,
    export_onnx,
    exportable,
)
from squid.methods import METHODS, build
from squid.methods.base import Batch, Method, MethodConfig
from squid.nn.standardiser import Standardiser

pytest.importorskip("onnxscript", reason="the export extra is not installed")

SIZE = 32
EVERYWHERE: dict[str, Any] = {"size": SIZE, "width": 4, "hidden": 16, "channels": (4, 8, 8)}
"""Taken by each method that has such a setting; an export needs no trained weights."""
SMALL: dict[str, dict[str, Any]] = {
    "fusion": {
        "parts": [
            {"name": "ae_u", "channels": (8, 16), "hidden": 16, "preprocess": ["equalise"]},
            {"name": "synthetic_lesions", "channels": (8, 16), "preprocess": ["standardise"]},
        ],
    },
    "squid": {
        "depth": 3, "slots": 16, "matrix_slots": 16, "heads": 2, "discriminator_width": 4,
        "uncertainty": True, "lesions": {"channels": (4, 8)},
        "score": ("discriminator", "relative_residual", "lesions"),
    },
}  # fmt: skip


def fitted(name: str) -> Method:
    """Small and untrained, with everything set that training would have measured."""
    fields = METHODS[name].Config.model_fields
    settings = {key: value for key, value in EVERYWHERE.items() if key in fields}
    torch.manual_seed(0)
    method = build(METHODS[name].Config.model_validate(settings | SMALL.get(name, {})))
    method.begin(8)
    for module in method.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(0.0, 0.1)
    with torch.no_grad():
        method.eval().finalize([Batch(images(8), torch.arange(8), {})])
        for module in method.modules():
            if isinstance(module, Standardiser):  # untrained scores hardly differ: no unit there
                module.spread.fill_(1.0)
    return method.to(memory_format=torch.channels_last)


def images(b: int) -> Tensor:
    """Blurred noise in 256 levels, as images are read: between two levels, rounding would decide
    about a pixel's rank."""
    noise = torch.rand(b, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(b))
    blurred = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)
    return (255 * blurred).round() / 255


@pytest.mark.parametrize("name", METHODS)
def test_onnx_gives_what_torch_gives(name: str, tmp_path: Path) -> None:
    method = fitted(name)
    if not exportable(method):
        pytest.skip(f"{name} fits something to each image when it scores")
    before = {key: value.clone() for key, value in method.state_dict().items()}
    assert export_onnx(method, tmp_path / "model.onnx", size=SIZE, images=images(3)) < 1e-2
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())
    backend = OnnxBackend(tmp_path / "model.onnx")
    for b in (1, 5):  # neither is a size that the export saw
        found = backend.run(images(b))
        with torch.no_grad():
            prepared = method.prepare(images(b))
            same(found["score"], method.score(prepared))
            reconstruction = method.reconstruct(prepared)
        assert ("reconstruction" in found) == (reconstruction is not None)
        if reconstruction is not None:
            same(found["reconstruction"], reconstruction)
    pixels = (images(7) * 255).round().to(torch.uint8)
    one_by_one = torch.cat([backend.score(one[None]) for one in pixels])
    assert torch.equal(one_by_one, backend.score(pixels))


def same(ours: Tensor, theirs: Tensor) -> None:
    atol = 1e-4 * max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=atol)


def test_an_export_is_checked_on_random_images_where_none_are_given(tmp_path: Path) -> None:
    method = fitted("squid")
    assert export_onnx(method, tmp_path / "model.onnx", size=SIZE) < 1e-2
    pixels = (images(4) * 255).to(torch.uint8)
    with torch.no_grad():
        expected = method.score(to_unit(pixels))
    same(OnnxBackend(tmp_path / "model.onnx").score(pixels), expected)


def test_a_method_that_fits_each_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="--backend torch"):
        export_onnx(fitted("if2d"), tmp_path / "model.onnx", size=SIZE)


class Unsteady(Method):
    """Adds the number of calls, which is a constant in the exported graph."""

    config = MethodConfig(name="unsteady")
    calls = 0

    def score(self, images: Tensor) -> Tensor:
        type(self).calls += 1
        return images.mean((1, 2, 3)) + self.calls


def test_a_file_that_differs_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="differ by"):
        export_onnx(Unsteady(), tmp_path / "model.onnx", size=SIZE)
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squid.inference.onnx.find_spec", lambda name: None)
    assert not can_export()
    with pytest.raises(MissingExtra, match=r"squid-radiography\[export\]"):
        export_onnx(Unsteady(), tmp_path / "model.onnx", size=SIZE)
    with pytest.raises(MissingExtra, match="onnxruntime"):
        OnnxBackend(tmp_path / "model.onnx")


def write_graph(
    path: Path,
    *steps: tuple[str, str, str],
    given: str = "images",
    made: str = "score",
    rank: int = 1,
    kind: str = "FLOAT",
    inside: bool = False,
) -> OnnxBackend:
    """A graph of steps `(operator, input, output)` after the mean of each image, opened."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "axes": np.array([1, 2, 3]), "column": np.array([[1]]),
        "zero": np.array([0], np.float32), "nan": np.array([np.nan], np.float32),
        "two": np.array([1, 1], np.float32),
    }  # fmt: skip
    nodes = [helper.make_node("ReduceMean", [given, "axes"], ["mean"], keepdims=0)]
    nodes += [helper.make_node(operator, taken.split(), [out]) for operator, taken, out in steps]
    score = helper.make_tensor_value_info(made, getattr(TensorProto, kind), ["n", "m"][:rank])
    if inside:  # the same in both branches
        branch = helper.make_graph(nodes, "branch", [], [score])
        yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
        nodes = [helper.make_node("Constant", [], ["yes"], value=yes)]
        nodes += [helper.make_node("If", ["yes"], [made], then_branch=branch, else_branch=branch)]
    image = helper.make_tensor_value_info(given, TensorProto.FLOAT, ["n", 1, "h", "w"])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [image], [score], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return OnnxBackend(path)


MEAN = ("Identity", "mean", "score")
TOTAL = ("ReduceMean", "mean", "total")


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        pytest.param([MEAN], {"given": "pictures"}, id="input name"),
        pytest.param([("Identity", "mean", "answer")], {"made": "answer"}, id="output name"),
        pytest.param([("Shape", "mean", "score")], {"kind": "INT64"}, id="whole numbers"),
        pytest.param([TOTAL, ("Squeeze", "total", "score")], {"rank": 0}, id="one number"),
        pytest.param([("Unsqueeze", "mean column", "score")], {"rank": 2}, id="a column"),
    ],
)
def test_a_graph_with_other_ends_is_refused_when_it_is_opened(
    tmp_path: Path, steps: list[tuple[str, str, str]], options: dict[str, Any]
) -> None:
    with pytest.raises(RunError, match=r"model\.onnx (has other inputs|cannot be opened).* remove"):
        write_graph(tmp_path / "model.onnx", *steps, **options)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (("Add", "mean two", "score"), "cannot be run by ONNX Runtime"),
        (("ReduceMean", "mean", "score"), "gives values of shape"),
    ],
)
def test_a_graph_that_fails_or_gives_another_shape_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], step: tuple[str, str, str], says: str
) -> None:
    backend = write_graph(tmp_path / "model.onnx", step)
    with pytest.raises(RunError, match=f"{says}.*; remove it") as caught:
        backend.score(torch.zeros(3, 1, SIZE, SIZE, dtype=torch.uint8))
    assert str(caught.value).isprintable()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "step", [MEAN, ("Mul", "mean zero", "score"), ("Mul", "mean nan", "score")]
)
def test_a_graph_that_scores_otherwise_is_refused(
    tmp_path: Path, step: tuple[str, str, str]
) -> None:
    """Also by a method whose scores are all close to zero."""
    method = fitted("ganomaly")
    export_onnx(method, tmp_path / "model.onnx", size=SIZE)
    OnnxBackend(tmp_path / "model.onnx").check_scores(method, SIZE)
    with pytest.raises(RunError, match="does not score as the weights of this run do"):
        write_graph(tmp_path / "model.onnx", step).check_scores(method, SIZE)


def test_a_graph_within_a_graph_is_refused_before_it_is_run(tmp_path: Path) -> None:
    """A loop may have no end; no export has one."""
    with pytest.raises(RunError, match="cannot be opened by ONNX Runtime; remove it"):
        write_graph(tmp_path / "model.onnx", MEAN, inside=True)
