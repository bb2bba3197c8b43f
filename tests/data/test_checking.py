"""`squid data check`: what is found in folders whose faults are known."""

import csv
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.checking import FolderCheck, check_folder
from squid.data.contact_sheet import choose, write_contact_sheet
from squid.data.folder import Folder
from squid.data.reading import Reading
from squid.errors import DataError
from squid.outputs.checks import check_record, check_row


def write(path: Path, seed: int, *, size: tuple[int, int] = (24, 32), bits: int = 8) -> Path:
    """An image of noise, the same for the same seed, size and bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.uint8 if bits == 8 else np.uint16
    pixels = np.random.default_rng(seed).integers(0, 2**bits, size).astype(dtype)
    PIL.Image.fromarray(pixels).save(path)
    return path


def checked(root: Path, **settings: object) -> FolderCheck:
    return check_folder(Folder.model_validate({"root": root, **settings}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two splits with a leak of an image and of a patient, and a file of each fault."""
    for number in range(4):
        write(tmp_path / f"train/normal/p{number}_a.png", number)
    write(tmp_path / "train/normal/p4_a.tif", 4, size=(30, 40), bits=16)
    write(tmp_path / "test/normal/p9_a.png", 2)  # p2_a once more
    write(tmp_path / "test/PNEUMONIA/p1_b.png", 5)  # p1 is in train, too
    write(tmp_path / "test/PNEUMONIA/p6_a.png", 6, size=(8, 8))
    (tmp_path / "test/normal/p7_a.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    PIL.Image.new("L", (20, 20), 7).save(tmp_path / "test/normal/p8_a.bmp")
    PIL.Image.new("RGB", (20, 20), (1, 200, 3)).save(tmp_path / "test/normal/p5_a.jpg")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".DS_Store").write_text("hidden")
    return tmp_path


def test_groups_are_as_a_training_would_take_them(folder: Path) -> None:
    rows = {
        (r.split, r.kind, r.taken_as): (r.images, r.unreadable) for r in checked(folder).groups()
    }
    assert rows == {
        ("train", "normal", "normal"): (5, 0),
        ("test", "normal", "normal"): (4, 1),
        ("test", "PNEUMONIA", "PNEUMONIA"): (2, 0),
    }


def test_formats_sizes_and_values_are_those_of_the_files(folder: Path) -> None:
    found = checked(folder)
    assert found.formats() == {"PNG": 7, "TIFF": 1, "BMP": 1, "JPEG": 1}
    assert found.sizes() == {"32 x 24": 6, "20 x 20": 2, "40 x 30": 1, "8 x 8": 1}
    low, high, images = found.values()[16]
    assert images == 1
    assert 0 <= low < 1000 < 64_000 < high <= 65_535
    assert found.values()[8][2] == 9
    assert found.steps() == {"16 bit scaled": 1, "gray from RGB": 1}


def test_an_ending_that_lies_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "a.png", 0).rename(tmp_path / "a.jpg")
    assert checked(tmp_path).formats() == {"PNG": 1}


def test_the_same_pixels_are_found_in_other_files(folder: Path, tmp_path: Path) -> None:
    picture = PIL.Image.open(folder / "train/normal/p0_a.png")
    picture.save(folder / "train/normal/copy.bmp")
    first, second = checked(folder).duplicates()
    assert {file.name for file in first} == {"train/normal/p2_a.png", "test/normal/p9_a.png"}
    assert {Path(file.name).name for file in second} == {"p0_a.png", "copy.bmp"}


def test_images_of_another_shape_are_no_copies(tmp_path: Path) -> None:
    PIL.Image.new("L", (20, 40), 9).save(tmp_path / "a.png")
    PIL.Image.new("L", (40, 20), 9).save(tmp_path / "b.png")
    assert checked(tmp_path).duplicates() == []


def test_patients_in_two_splits_are_found(folder: Path) -> None:
    assert checked(folder).shared_patients() == []
    (shared,) = checked(folder, patient=r"(p\d)_").shared_patients()
    assert (shared.first, shared.second, shared.patients) == ("train/normal", "test/PNEUMONIA", 1)
    assert shared.example == ("train/normal/p1_a.png", "test/PNEUMONIA/p1_b.png")


def test_unreadable_files_and_images_without_a_score_have_reasons(folder: Path) -> None:
    found = checked(folder)
    (broken,) = found.unreadable
    assert broken.name == "test/normal/p7_a.png"
    assert broken.unreadable.startswith("is damaged")
    reasons = {file.name: file.not_applicable for file in found.not_applicable}
    assert "fewer than 16 a side" in reasons["test/PNEUMONIA/p6_a.png"]
    assert "one gray value" in reasons["test/normal/p8_a.bmp"]


def test_other_files_are_counted_and_hidden_ones_not(folder: Path) -> None:
    assert checked(folder).others == {".txt": 1}


def test_settings_of_a_recipe_count(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 4096, (20, 20)).astype(np.uint16)
    PIL.Image.fromarray(pixels).save(tmp_path / "a.png")
    assert list(checked(tmp_path).values()) == [16]
    assert "is read as nearly black" in check_record(checked(tmp_path))["warnings"][0]
    assert list(checked(tmp_path, bits=12).values()) == [12]
    assert check_record(checked(tmp_path, bits=12))["warnings"] == []


def test_the_record_is_json_and_rows_hold_every_file_without_patients(folder: Path) -> None:
    found = checked(folder, patient=r"(p\d)_")
    record = json.loads(json.dumps(check_record(found)))
    assert record["images"] == len(found.files) == 11
    assert all("patient" not in row for row in map(check_row, found.files))
    (broken,) = (row for row in map(check_row, found.files) if row["unreadable"])
    assert (broken["name"], broken["digest"]) == ("test/normal/p7_a.png", "")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no image"):
        checked(tmp_path)


def test_the_sheet_shows_small_groups_whole(tmp_path: Path) -> None:
    for number in range(90):
        write(tmp_path / f"normal/{number}.png", number)
    for number in range(5):
        write(tmp_path / f"rare/{number}.png", 100 + number)
    chosen = choose(checked(tmp_path), 64)
    assert len(chosen) == len({file.name for file in chosen}) == 64
    assert sum(file.kind == "rare" for file in chosen) == 5
    assert {"normal/0.png", "normal/89.png"} <= {file.name for file in chosen}


def test_the_sheet_is_a_picture_of_the_images(folder: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    assert write_contact_sheet(checked(folder), sheet, Reading()) == 10
    with PIL.Image.open(sheet) as picture:
        assert picture.mode == "L"
        # Eight columns and two rows of 144 pixels, with text and gaps.
        assert picture.size == (8 * 152 + 8, 2 * 182 + 8)
        assert len(np.unique(np.asarray(picture))) > 50


def test_the_command_writes_its_files(folder, squid, tmp_path):
    out = tmp_path / "out"
    settings = ("--set", r"data.patient='(p\d)_'")
    code, printed, _ = squid("data", "check", folder, "--out", out, *settings)
    assert code == 0
    assert "the same image several times: 1" in printed
    assert "train/normal and test/PNEUMONIA: 1, for example" in printed
    assert "unreadable: 1" in printed
    assert json.loads((out / "check.json").read_text())["images"] == 11
    with (out / "files.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 11
    assert (out / "contact-sheet.png").stat().st_size > 1000


def test_the_command_prints_json(folder, squid):
    code, printed, _ = squid("data", "check", folder, "--format", "json")
    assert (code, json.loads(printed)["other_files"]) == (0, {".txt": 1})
