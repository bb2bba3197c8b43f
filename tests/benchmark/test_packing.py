"""benchmarks/packing.py: what is packed comes back."""

import sys
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packing() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return import_module("packing")
    finally:
        sys.path.pop(0)


sides = st.integers(1, 9)


@given(st.tuples(st.integers(1, 4), sides, sides).flatmap(lambda shape: arrays(np.uint8, shape)))
def test_any_pixels_are_restored(packing: ModuleType, pixels: np.ndarray) -> None:
    np.testing.assert_array_equal(packing._restore(packing.differences(pixels)), pixels)


def test_a_folder_comes_back(packing: ModuleType, tmp_path: Path) -> None:
    rng, data = np.random.default_rng(0), tmp_path / "data"
    (data / "images").mkdir(parents=True)
    kept = {}
    for i, side in enumerate((8, 8, 12)):
        kept[f"images/{i}.png"] = rng.integers(0, 256, (side, side), dtype=np.uint8)
    for name, pixels in kept.items():
        PIL.Image.fromarray(pixels).save(data / name)
    (data / "table.csv").write_text("image,finding\n")
    stack = rng.integers(0, 256, (5, 6, 7), dtype=np.uint8)
    np.savez(data / "more.npz", images=stack, names=np.array(list("abcde")))
    packing.pack(data, tmp_path / "p.pack")
    packing.unpack(tmp_path / "p.pack", tmp_path / "back")
    assert (tmp_path / "back/table.csv").read_text() == "image,finding\n"
    for name, pixels in kept.items():
        np.testing.assert_array_equal(np.array(PIL.Image.open(tmp_path / "back" / name)), pixels)
    with np.load(tmp_path / "back/more.npz") as found:
        np.testing.assert_array_equal(found["images"], stack)
        assert found["names"].tolist() == list("abcde")


def test_only_what_is_to_be_kept_is_packed(packing: ModuleType, tmp_path: Path) -> None:
    for name in ("a", "b"):
        PIL.Image.new("L", (8, 8), 7).save(tmp_path / f"{name}.png")
    packing.pack(tmp_path, tmp_path.parent / "p.pack", frozenset({"b"}))
    packing.unpack(tmp_path.parent / "p.pack", tmp_path / "back")
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["b.png"]


def test_no_pack_writes_outside_its_folder(packing: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.pack", "w") as archive:
        archive.writestr("index.json", "{}")
        archive.writestr("files/../../out.txt", b"")
    with pytest.raises(SystemExit, match="outside the folder"):
        packing.unpack(tmp_path / "bad.pack", tmp_path / "back")
    assert not (tmp_path / "out.txt").exists()
