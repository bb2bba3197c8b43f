"""Folders are searched by content; what is no image is named with the reason."""

import io
import os
import socket
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squid.data.inputs import list_files
from squid.data.walk import OTHER, Found, find_images, is_image, natural, summary
from squid.errors import DataError

GRAY = np.arange(400, dtype=np.uint8).reshape(20, 20)


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(GRAY).save(buffer, format=kind)
    return buffer.getvalue()


def found_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Names of the images, and the reasons for what was left out."""
    found = find_images(folder)
    return (
        [path.relative_to(folder).as_posix() for path in found.images],
        {os.path.relpath(path, folder): reason for path, reason in found.left_out},
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "BMP", "DICOM"])
def test_an_image_is_found_whatever_its_name(kind: str, tmp_path: Path) -> None:
    data = bytes(128) + b"DICM" + bytes(9) if kind == "DICOM" else encoded(kind)
    for name in ("IM000001", "scan.v2", "1.2.840.113619.2", "notes.txt"):
        (tmp_path / name).write_bytes(data)
    names, left_out = found_in(tmp_path)
    assert sorted(names) == ["1.2.840.113619.2", "IM000001", "notes.txt", "scan.v2"]
    assert left_out == {}


def test_everything_else_is_named_with_the_reason(tmp_path: Path) -> None:
    for name, data in {
        "a.png": b"broken, but an image by its name",
        "b.webp": encoded("WEBP"),
        "c.gif": encoded("GIF"),
        "d.txt": b"BM is a text",
        "e": b"",
        "DICOMDIR": bytes(128) + b"DICM",
        ".hidden.png": encoded("PNG"),
        "__MACOSX/f.png": encoded("PNG"),
        ".git/g.png": encoded("PNG"),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "h.png").symlink_to("nowhere")
    names, left_out = found_in(tmp_path)
    assert names == ["a.png"]
    assert left_out == {
        "b.webp": f"{OTHER} (.webp)",
        "c.gif": f"{OTHER} (.gif)",
        "d.txt": f"{OTHER} (.txt)",
        "e": "empty",
        "DICOMDIR": "a directory of DICOM files",
        ".hidden.png": "hidden",
        "__MACOSX": "hidden",
        ".git": "hidden",
        "h.png": "a link that leads nowhere",
    }
    counted = summary(find_images(tmp_path).left_out)
    assert counted.startswith("3 left out: hidden, ")
    assert "1 left out: not PNG, JPEG, TIFF, BMP or DICOM (.webp)" in counted
    assert summary(()) == ""


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        (tmp_path / "zero").symlink_to("/dev/zero")
        names, left_out = found_in(tmp_path)
    assert names == []
    assert left_out == {
        "pipe.png": "a special file (FIFO)",
        "pipe": "a special file (FIFO)",
        "s": "a special file (socket)",
        "zero": "a special file (device)",
    }
    for path in (tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(DataError, match=f"{path} cannot be read: it is a special file"):
            list_files([path])


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    for path in (top / "real" / "a.png", other / "b.png"):
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded("PNG"))
    for name, target in {
        "1": other, "2": other, "again": top / "real", "real/loop": top, "up": tmp_path, "all": "/",
    }.items():  # fmt: skip
        (top / name).symlink_to(target)
    names, left_out = found_in(top)
    assert names in (["1/b.png", "real/a.png"], ["2/b.png", "real/a.png"])
    assert len(left_out) == 5
    assert set(left_out.values()) == {"a link to a folder that is read already"}
    assert {"again", "real/loop", "up", "all"} < set(left_out)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may open every folder")
def test_a_folder_that_may_not_be_opened_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert found_in(tmp_path) == ([], {"closed": "cannot be opened: Permission denied"})


def test_files_are_in_natural_order(tmp_path: Path) -> None:
    for name in ("image10.png", "image2.png", "b/1.png", "Image1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names, _ = found_in(tmp_path)
    assert names == ["b/1.png", "Image1.png", "image2.png", "image10.png"]


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded("PNG"))
    (tmp_path / "b.png").write_bytes(encoded("PNG"))
    (tmp_path / "link").symlink_to(tmp_path)
    again = tmp_path / "link" / "a.png"
    roundabout = tmp_path / "link" / ".." / tmp_path.name / "b.png"
    found = list_files([tmp_path, again, roundabout])
    assert found.images[:2] == (tmp_path / "a.png", tmp_path / "b.png")
    assert (str(again), "given twice") in found.left_out
    assert (str(roundabout), "given twice") in found.left_out


def test_what_is_not_there_is_refused_or_left_to_the_reader(tmp_path: Path) -> None:
    absent = tmp_path / "absent.png"
    with pytest.raises(DataError, match=r"There is no file or folder .*absent\.png"):
        list_files([absent])
    for odd in (Path("nul\0.png"), Path("x" * 5000)):
        with pytest.raises(DataError, match="cannot be read"):
            list_files([odd])
    assert list_files([absent], "skip") == Found((absent,))


def test_a_folder_without_images_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a.webp").write_bytes(encoded("WEBP"))
    with pytest.raises(DataError, match=r"holds no image files .*; 1 left out: not PNG.*webp\)\."):
        list_files([tmp_path])
    found = list_files([tmp_path], "skip")
    assert found == Found((), ((str(tmp_path / "a.webp"), f"{OTHER} (.webp)"),))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_image_or_not(data: bytes) -> None:
    assert is_image(data) in (True, False)


@given(st.lists(st.text(alphabet="a1²٣/._-", min_size=1, max_size=8), max_size=8))
def test_any_names_have_an_order_that_does_not_depend_on_theirs(names: list[str]) -> None:
    paths = [Path(name) for name in names]
    assert natural(paths) == natural(reversed(paths))
