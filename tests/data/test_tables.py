"""Tables and arrays from outside: what they hold, or one sentence, in bounded memory and time."""

import gzip
import io
import json
import os
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squid.config import parse
from squid.data import tables
from squid.data.folder import Folder
from squid.data.patients import match_patients
from squid.data.tables import inside, read_array, read_arrays, read_json, read_table, read_unpacked
from squid.errors import ConfigError, DataError


def npz(path: Path, **arrays: np.ndarray) -> bytes:
    np.savez_compressed(path, **arrays)
    return path.read_bytes()


def test_arrays_are_read(tmp_path: Path) -> None:
    npz(tmp_path / "a.npz", images=np.arange(6))
    assert read_arrays(tmp_path / "a.npz", "images")["images"].tolist() == list(range(6))
    with pytest.raises(DataError, match="holds no array 'labels', only images"):
        read_arrays(tmp_path / "a.npz", "labels")
    with pytest.raises(DataError, match="There is no file"):
        read_arrays(tmp_path / "absent.npz")


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=6),
    keep=st.floats(0.2, 1.0),
)
def test_a_damaged_npz_is_read_or_is_a_data_error(
    changes: list[tuple[float, int]], keep: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    data = bytearray(npz(path, images=np.arange(300, dtype=np.uint8), names=np.array(["a", "b"])))
    for place, value in changes:
        data[int(place * len(data))] = value
    path.write_bytes(data[: int(keep * len(data))])
    try:
        arrays = read_arrays(path)
    except DataError:
        return
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, 99])
def test_other_compression_and_passwords_are_one_sentence(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    data = bytearray(npz(path, images=np.arange(300)))
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        place = data.index(signature) + offset
        data[place : place + 2] = method.to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match="is not a readable npz file"):
        read_arrays(path)


def test_arrays_that_unpack_to_too_much_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npz(tmp_path / "a.npz", images=np.zeros(200_000, np.uint8))
    monkeypatch.setattr(tables, "MAX_BYTES", 100_000)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(DataError, match="unpacks to 0 MiB"):
        read_arrays(tmp_path / "a.npz")


def test_an_array_that_says_it_is_too_large_for_memory_is_one_sentence(tmp_path: Path) -> None:
    header = io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (2**46,)}
    np.lib.format.write_array_header_1_0(header, shape)
    (tmp_path / "a.npy").write_bytes(header.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as packed:
        packed.writestr("images.npy", header.getvalue())
    for read, name in ((read_array, "a.npy"), (read_arrays, "a.npz")):
        with pytest.raises(DataError, match="it says that it holds more than fits in memory"):
            read(tmp_path / name)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    trap = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "a.npz", images=trap)
    np.save(tmp_path / "a.npy", trap)
    for read, name in ((read_arrays, "a.npz"), (read_array, "a.npy")):
        with pytest.raises(DataError, match="it holds Python objects, which are not loaded"):
            read(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_data_error(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(data)
        try:
            rows = read_table(path)
        except DataError:
            rows = []
    assert isinstance(rows, list)


def test_cells_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("name,x,age\na,,5\nb,1.5,\n")
    assert [row["x"] for row in read_table(path, "x", numbers=("x",))] == ["", "1.5"]
    with pytest.raises(DataError, match="holds '' for age in row 2"):
        read_table(path, integers=("age",))
    path.write_text("name,x\na,wide\n")
    with pytest.raises(DataError, match="holds 'wide' for x in row 1"):
        read_table(path, numbers=("x",))


def test_a_packed_table_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(bytes(5000)))
    monkeypatch.setattr(tables, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match="unpacks to more than"):
        read_unpacked(path)
    path.write_bytes(gzip.compress(bytes(5000))[:20])
    with pytest.raises(DataError, match="is not a readable gzip file"):
        read_unpacked(path)


def test_json_that_is_nested_or_broken_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    for text, reason in (("[" * 100_000, "it is nested too deeply"), ("{", "is not readable JSON")):
        path.write_text(text)
        with pytest.raises(DataError, match=reason):
            read_json(path)


@pytest.mark.parametrize("name", ["../x.png", "/etc/passwd", "a/../../x.png", "a\0.png"])
def test_no_name_leads_out_of_a_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not below"):
        inside(tmp_path, name)
    (tmp_path / "data.json").write_text(json.dumps({"train": {"0": [name]}, "test": {"0": []}}))
    with pytest.raises(DataError, match="is not below"):
        Folder(root=tmp_path).load(8)


def test_a_fifo_in_a_dataset_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    os.mkfifo(tmp_path / "images" / "x.png")
    table = {"train": {"0": ["x.png"]}, "test": {"0": []}}
    (tmp_path / "data.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match=r"x\.png cannot be read: it is a special file \(FIFO\)"):
        Folder(root=tmp_path).load(8)


def test_a_patient_is_the_first_group() -> None:
    assert match_patients(["a/12_x.png", "b/7.png"], r"/(\d+)") == ("12", "7")
    with pytest.raises(DataError, match=r"finds no group in 'x\.png'"):
        match_patients(["x.png"], r"(\d+)")
    with pytest.raises(DataError, match="finds no group in 'b'"):
        match_patients(["b"], "(a)|b")


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)+$", "(.*)*(.*)*(.*)*$x"])
def test_an_expression_that_takes_exponential_time_is_stopped(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squid.data.patients.SECONDS", 0.2)
    begun = time.monotonic()
    with pytest.raises(DataError, match=r"takes too long|finds no group"):
        match_patients(["a" * 60 + "!"] * 3, expression)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "it is no regular expression"),
        ("a", "it has no group"),
        ("(a)" * 200, "it has more than 500 letters"),
    ],
)
def test_an_impossible_expression_is_refused_with_the_recipe(expression: str, reason: str) -> None:
    values = {"root": "x", "patient": expression}
    with pytest.raises(ConfigError, match=f"recipe: patient: {reason}"):
        parse(Folder, values, "recipe")


def test_an_npy_of_a_huge_shape_takes_no_memory(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(4, np.uint8))
    data = buffer.getvalue().replace(b"(4,), ", b"(4000000000000,), ", 1)
    shift = len(data) - len(buffer.getvalue())
    (tmp_path / "a.npy").write_bytes(data.replace(b" " * shift, b"", 1))
    with pytest.raises(DataError, match="is not a readable npy file"):
        read_array(tmp_path / "a.npy")
