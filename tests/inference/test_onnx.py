"""Every method gives the same scores in ONNX as in torch, at any batch size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from squid.data.pixels import to_unit
from squid.errors import MissingExtra
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
