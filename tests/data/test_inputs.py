"""What a user hands over becomes gray pixels, or one clear error."""

import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from squid.data import inputs
from squid.data.applicable import not_applicable
from squid.data.inputs import read_file_list, read_images
from squid.data.levels import RangeWarning
from squid.data.reading import Reading
from squid.data.walk import OTHER
from squid.errors import DataError

GRAY = np.arange(64, dtype=np.uint8).reshape(8, 8)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (1, 1, 8, 8)])
@pytest.mark.parametrize("kind", ["array", "tensor", "float"])
def test_gray_arrays_of_every_shape_give_the_same_pixels(shape: tuple[int, ...], kind: str) -> None:
    given = GRAY.reshape(shape)
    images = {"array": given, "tensor": torch.from_numpy(given), "float": given / 255.0}[kind]
    loaded = read_images(images, 8)
    assert torch.equal(loaded.pixels, torch.from_numpy(GRAY)[None, None])
    assert loaded.sources == ("image 0",)
    assert loaded.places == (0,)


@pytest.mark.parametrize("channels", [3, 4])
def test_a_colour_array_is_one_image_with_the_pixels_of_its_file(
    channels: int, tmp_path: Path
) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (48, 40, channels), dtype=np.uint8)
    colour[..., 3:] = 255
    PIL.Image.fromarray(colour).save(tmp_path / "colour.png")
    expected = read_images(tmp_path / "colour.png", 16).pixels
    wide = colour.astype(np.uint16) * 257
    for images in (colour, colour[None], torch.from_numpy(colour), [colour]):
        assert torch.equal(read_images(images, 16).pixels, expected)
    for images in (wide, colour / 255.0):
        assert (read_images(images, 16).pixels.int() - expected).abs().max() <= 1


def test_transparent_pixels_are_refused() -> None:
    with pytest.raises(DataError, match="image 0 is partly transparent"):
        read_images(np.zeros((48, 48, 4), np.uint8), 8)


@pytest.mark.parametrize(
    "shape", [(), (5,), (2, 3, 48, 48), (2, 2, 4, 8, 8), (1, 0, 0), (48, 0, 3)]
)
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="are not understood; give gray"):
        read_images(np.zeros(shape, np.uint8), 8)


def test_three_gray_images_are_no_colour() -> None:
    assert len(read_images(torch.zeros(3, 48, 48), 8).pixels) == 3


def test_several_images_in_memory_are_read_in_order() -> None:
    other = 255 - GRAY
    both = torch.from_numpy(np.stack([GRAY, other]))[:, None]  # (n, 1, h, w)
    pictures = [PIL.Image.fromarray(GRAY), PIL.Image.fromarray(other)]
    for images in ([GRAY, other], pictures, (one for one in pictures), (GRAY, pictures[1])):
        loaded = read_images(images, 8)
        assert torch.equal(loaded.pixels, both)
        assert loaded.sources == ("image 0", "image 1")
    batches = torch.utils.data.DataLoader(both.float() / 255, batch_size=1)
    assert torch.equal(read_images(batches, 8).pixels, both)


def test_a_pillow_image_is_read_as_its_file(tmp_path: Path) -> None:
    wide = np.arange(400, dtype=np.uint16).reshape(20, 20) * 160
    PIL.Image.fromarray(wide).save(tmp_path / "wide.png")
    with PIL.Image.open(tmp_path / "wide.png") as picture:
        pixels = read_images(picture, 8).pixels
    assert torch.equal(pixels, read_images(tmp_path / "wide.png", 8).pixels)
    assert torch.equal(pixels, read_images(wide, 8).pixels)
    with pytest.raises(DataError, match="image 0 has no pixels"):
        read_images(PIL.Image.new("L", (0, 4)), 8)


def test_twelve_bits_in_words_of_sixteen_are_reported_and_corrected() -> None:
    twelve = np.arange(64, dtype=np.uint16).reshape(8, 8) * 65
    with pytest.warns(RangeWarning, match="image 0 uses the values 0 to 4,095") as caught:
        read_images([twelve, twelve], 8)
    assert len(caught) == 1
    assert read_images(twelve, 8, reading=Reading(bits=12)).pixels.max() == 255
    with pytest.raises(DataError, match="image 0 holds the value 4,095, more than 11 bits"):
        read_images(twelve, 8, reading=Reading(bits=11))


def test_files_and_arrays_are_not_mixed() -> None:
    with pytest.raises(DataError, match="mixed"):
        read_images(["a.png", GRAY], 8)


def test_read_only_arrays_are_read_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = np.asarray(PIL.Image.fromarray(GRAY))
        assert torch.equal(read_images(given, 8).pixels[0, 0], torch.from_numpy(GRAY))


@pytest.mark.parametrize(
    "images", [None, 3, b"bytes", io.BytesIO(), {"a.png": 1}, [None], [[1, 2]], object()]
)
def test_other_types_are_refused_in_one_sentence(images: object) -> None:
    with pytest.raises(DataError, match="are not understood; give a file"):
        read_images(images, 8)  # type: ignore[arg-type]


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "ready": lambda dense: dense[None, None].byte().to_sparse(),  # would be taken as it is
    "quantised": lambda dense: torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8),
    "meta": lambda dense: dense.to("meta"),
    "nested": lambda dense: torch.nested.nested_tensor([dense, dense]),
}


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.filterwarnings("ignore")  # torch's own, of layouts in beta
def test_tensors_without_plain_memory_are_refused_in_one_sentence(kind: str) -> None:
    image = LAYOUTS[kind](torch.eye(8))
    for images in (image, [image]):
        with pytest.raises(DataError, match="give a plain one"):
            read_images(images, 8)


def test_floats_outside_the_unit_range_and_wide_integers_are_refused() -> None:
    with pytest.raises(DataError, match="divide by"):
        read_images(GRAY.astype(np.float32), 8)
    with pytest.raises(DataError, match="type int16"):
        read_images(GRAY.astype(np.int16), 8)
    with pytest.raises(DataError, match="divide by"):
        read_images(np.full((8, 8), np.nan), 8)


@pytest.mark.parametrize("size", [8, 48])
def test_tensors_that_are_taken_as_they_are_carry_the_reasons_of_arrays(size: int) -> None:
    fine, flat = np.zeros((2, 1, size, size), np.uint8)
    fine[0, 0, 0] = 1
    images = np.stack([fine, flat])
    ready, read = read_images(torch.from_numpy(images), size), read_images(images, size)
    assert ready.not_applicable == read.not_applicable
    assert [bool(reason) for reason in ready.not_applicable] == [size == 8, True]
    assert (ready.steps, ready.warnings) == (((), ()), ((), ()))


def test_an_image_that_is_flat_as_bytes_has_no_score() -> None:
    dark = np.arange(400, dtype=np.uint16).reshape(20, 20) // 4  # 0 to 99 of 65,535
    with pytest.warns(RangeWarning):
        loaded = read_images(dark, 20)
    assert loaded.not_applicable[0].endswith("one gray value once it is resized to bytes")


def test_each_image_in_memory_keeps_its_own_warnings() -> None:
    wide = np.arange(400, dtype=np.uint16).reshape(20, 20) * 160
    twelve = wide // 16
    with pytest.warns(RangeWarning, match="image 1 uses the values 0 to 3,990"):
        loaded = read_images(np.stack([wide, twelve, twelve]), 8)
    assert [len(some) for some in loaded.warnings] == [0, 1, 1]
    assert loaded.first_warning.startswith("image 1 uses")


def test_an_empty_path_is_not_the_working_directory() -> None:
    for images in ("", ["a.png", ""]):
        with pytest.raises(DataError, match="An empty path names no file"):
            read_images(images, 8)


def test_constant_and_tiny_images_in_memory_carry_the_reason() -> None:
    fine = np.arange(400, dtype=np.uint16).reshape(20, 20) * 160
    images = [fine, fine / 65535, np.zeros((20, 20)), GRAY, PIL.Image.new("L", (20, 20), 7)]
    flat, tiny = "all pixels have one gray value", "8 x 8 pixels, fewer than 16 a side"
    reasons = read_images(images, 8).not_applicable
    assert [reason.removeprefix("not applicable: ") for reason in reasons] == [
        *("", "", flat, tiny, flat)
    ]
    assert not_applicable(torch.zeros(1, 20, 20)).endswith(flat)
    assert not_applicable(torch.zeros(1, 9, 20)).startswith("not applicable: 20 x 9 pixels")


@pytest.mark.parametrize(
    "content", [b"a.png\nb c.png\n", b"a.png\0b c.png\0", b"\xef\xbb\xbfa.png\r\n\r\nb c.png"]
)
def test_a_list_of_files_is_read_from_a_file_a_pipe_or_the_standard_input(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [Path("a.png"), Path("b c.png")]
    (tmp_path / "list").write_bytes(content)
    assert read_file_list(tmp_path / "list") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_file_list("-") == expected
    receiver, sender = os.pipe()
    os.write(sender, content)
    os.close(sender)
    assert read_file_list(f"/dev/fd/{receiver}") == expected
    os.close(receiver)


def test_a_list_of_files_may_hold_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xff\xfe.png")
    (path,) = read_file_list(tmp_path / "list")
    assert os.fsencode(path) == b"\xff\xfe.png"


def test_an_impossible_list_of_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_bytes(b"\n \n")
    with pytest.raises(DataError, match="names no file"):
        read_file_list(tmp_path / "empty")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match="cannot be read"):
            read_file_list(path)
    monkeypatch.setattr(inputs, "MAX_LIST_BYTES", 1000)
    with pytest.raises(DataError, match="/dev/zero has more than"):
        read_file_list("/dev/zero")


@given(st.binary(max_size=100))
def test_any_list_gives_paths_or_a_data_error(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            paths = read_file_list(file.name)
        except DataError:
            return
    assert paths


def test_what_a_folder_holds_beside_images_is_reported(tmp_path: Path) -> None:
    PIL.Image.fromarray(GRAY).save(tmp_path / "IM1", "PNG")
    (tmp_path / "notes.txt").write_text("notes")
    loaded = read_images([tmp_path, tmp_path / "IM1"], 8)
    assert loaded.sources == (str(tmp_path / "IM1"),)
    assert loaded.left_out == (
        (str(tmp_path / "notes.txt"), f"{OTHER} (.txt)"),
        (str(tmp_path / "IM1"), "given twice"),
    )
    gone = read_images([tmp_path / "gone.png", tmp_path], 8, on_error="skip")
    assert gone.skipped[0][0] == str(tmp_path / "gone.png")
    assert "No such file" in gone.skipped[0][1]
