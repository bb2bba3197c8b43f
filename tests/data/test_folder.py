"""The layouts that people keep their images in."""

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.files import natural
from squid.data.folder import Folder
from squid.errors import DataError

Counts = list[tuple[int, int]]


def write(root: Path, *names: str) -> None:
    """A different random picture under each name."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(list(name.encode()))
        PIL.Image.fromarray(rng.integers(0, 256, size=(16, 16), dtype=np.uint8)).save(path)


def many(folder: str, n: int) -> list[str]:
    return [f"{folder}/{i}.png" for i in range(n)]


def counts(root: Path, **fields: object) -> Counts:
    splits = Folder.model_validate({"root": root, **fields}).load(8)
    return [(row.normal, row.anomalous) for row in splits.table()]


def test_flat_folder_is_normal_and_a_share_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, *many(".", 6), *many("ward/a", 4))
    assert counts(tmp_path) == [(8, 0), (2, 0), (0, 0)]
    assert counts(tmp_path, holdout=0.4) == [(6, 0), (4, 0), (0, 0)]


@pytest.mark.parametrize(
    "kinds", [("normal", "abnormal"), ("good", "bad"), ("NORMAL", "PNEUMONIA")]
)
def test_class_folders_test_on_all_anomalies(tmp_path: Path, kinds: tuple[str, str]) -> None:
    write(tmp_path, *many(kinds[0], 10), *many(kinds[1], 5))
    assert counts(tmp_path) == [(6, 0), (2, 0), (2, 5)]


@pytest.mark.parametrize(
    ("valid", "kinds"),
    [
        ("valid", ("normal", "abnormal")),
        ("val", ("normal_256", "pneumonia_256")),
        ("valid", ("good", "Ungood")),
        ("val", ("NORMAL", "PNEUMONIA")),
    ],
)
def test_given_splits_are_kept(tmp_path: Path, valid: str, kinds: tuple[str, str]) -> None:
    normal, anomalous = kinds
    write(tmp_path, *many(f"train/{normal}", 5))
    for part in (valid, "test"):
        write(tmp_path, *many(f"{part}/{normal}", 2), *many(f"{part}/{anomalous}", 3))
    assert counts(tmp_path) == [(5, 0), (2, 3), (2, 3)]
    assert Folder(root=tmp_path).load(8).official


def test_named_anomalies_are_findings_and_validation_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, *many("train/good", 5), *many("test/good", 2), *many("test/crack/deep", 3))
    splits = Folder(root=tmp_path).load(8)
    assert [tuple(row)[1:3] for row in splits.table()] == [(4, 0), (1, 0), (2, 3)]
    assert splits.test.findings is not None
    assert sorted(splits.test.findings) == ["", "", "crack", "crack", "crack"]


def test_data_json_names_the_files(tmp_path: Path) -> None:
    write(tmp_path, *many("images", 9))
    table = {
        "train": {"0": [f"{i}.png" for i in range(5)], "unlabeled": {"0": ["8.png"]}},
        "test": {"0": ["5.png"], "1": ["6.png", "7.png"]},
    }
    (tmp_path / "data.json").write_text(json.dumps(table))
    assert counts(tmp_path) == [(4, 0), (1, 0), (1, 2)]
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(DataError, match=r"data\.json is not train and test"):
        counts(tmp_path)


def test_anomalous_training_images_need_contamination(tmp_path: Path) -> None:
    write(tmp_path, *many("train/normal", 10), *many("train/abnormal", 6), *many("test/normal", 2))
    assert counts(tmp_path)[0] == (8, 0)
    assert "6 anomalous training images were left out." in Folder(root=tmp_path).load(8).warnings
    assert counts(tmp_path, contamination=0.25)[0] == (6, 2)
    with pytest.raises(DataError, match="needs 7 anomalous training images, and 'folder' has 6"):
        counts(tmp_path, contamination=0.9)


def test_contamination_of_healthy_images_is_refused(tmp_path: Path) -> None:
    write(tmp_path, *many("any", 10))
    with pytest.raises(DataError, match="'folder' has 0"):
        counts(tmp_path, contamination=0.2)


def test_copies_of_an_image_stay_in_one_split(tmp_path: Path) -> None:
    write(tmp_path, *many(".", 10))
    for i in range(10):
        (tmp_path / f"copy{i}.png").write_bytes((tmp_path / f"{i}.png").read_bytes())
    for seed in range(5):
        assert counts(tmp_path, seed=seed) == [(16, 0), (4, 0), (0, 0)]


def test_patients_stay_together(tmp_path: Path) -> None:
    write(tmp_path, *[f"normal/p{i % 6}-{i}.png" for i in range(24)], "abnormal/p0-99.png")
    splits = Folder(root=tmp_path, patient=r"(p\d+)-").load(8)
    train, validation, test = (set(images.patients or ()) for _, images in splits.items())
    assert train | validation | test == {f"p{i}" for i in range(6)}
    assert "p0" in test
    assert not train & validation | train & test | validation & test
    with pytest.raises(DataError, match="finds no group"):
        Folder(root=tmp_path, patient="ward(.)").load(8)


def test_unreadable_files_are_named_and_refused_or_skipped(tmp_path: Path) -> None:
    write(tmp_path, *many(".", 5))
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / ".hidden.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png is not a readable image"):
        Folder(root=tmp_path).load(8)
    splits = Folder(root=tmp_path, unreadable="skip").load(8)
    assert len(splits.train) + len(splits.validation) == 5
    assert "broken.png" in splits.warnings[0]


def test_unreadable_files_are_refused_with_the_key_that_leaves_them_out(tmp_path: Path) -> None:
    write(tmp_path, *many(".", 5))
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"; data\.unreadable=skip goes on without such files\.$"):
        Folder(root=tmp_path).load(8)


def test_constant_and_tiny_images_are_left_out_by_name(tmp_path: Path) -> None:
    write(tmp_path, *many("train/good", 5), *many("test/good", 2), *many("test/bad", 2))
    PIL.Image.new("L", (20, 20), 9).save(tmp_path / "train/good/flat.png")
    PIL.Image.linear_gradient("L").resize((9, 20)).save(tmp_path / "test/bad/tiny.png")
    splits = Folder(root=tmp_path).load(8)
    assert [(row.normal, row.anomalous) for row in splits.table()] == [(4, 0), (1, 0), (2, 2)]
    assert splits.warnings == (
        f"Left out: {tmp_path}/train/good/flat.png: all pixels have one gray value.",
        f"Left out: {tmp_path}/test/bad/tiny.png: 9 x 20 pixels, fewer than 16 a side.",
    )


def test_files_that_are_no_images_are_counted(tmp_path: Path) -> None:
    write(tmp_path, *many("train/good", 5), *many("test/bad", 2))
    for i in range(3):
        PIL.Image.new("L", (20, 20)).save(tmp_path / f"train/good/{i}.webp")
    PIL.Image.new("L", (20, 20)).save(tmp_path / "test/bad/0.gif")
    other = "not PNG, JPEG, TIFF, BMP or DICOM"
    assert Folder(root=tmp_path).load(8).warnings == (
        f"3 files were left out: {other} (.webp).",
        f"1 file was left out: {other} (.gif).",
    )


def test_the_table_of_labels_is_not_counted_among_other_files(tmp_path: Path) -> None:
    write(tmp_path, *many(".", 4))
    rows = "".join(f"{i}.png,normal\n" for i in range(4))
    (tmp_path / "labels.csv").write_text(f"image,finding\n{rows}")
    (tmp_path / "notes.txt").write_text("notes")
    (warning,) = Folder(root=tmp_path).load(8).warnings
    assert warning.endswith("(.txt).")


def test_other_columns_of_the_table_of_labels_are_kept(tmp_path: Path) -> None:
    """Evaluations have strata of them: the machine an image was taken with, say."""
    write(tmp_path, *many(".", 10))
    rows = "".join(f"{i}.png,{'nodule' if i > 7 else ''},room {i % 2},\n" for i in range(10))
    (tmp_path / "labels.csv").write_text(f"image,finding,machine,empty\n{rows}")
    splits = Folder(root=tmp_path).load(8)
    assert set(splits.test.columns) == {"machine"}
    for name, machine in zip(splits.test.names, splits.test.columns["machine"], strict=True):
        assert machine == f"room {int(name[0]) % 2}"


def test_unrecognised_class_folders_are_reported(tmp_path: Path) -> None:
    write(tmp_path, *many("ward1", 6), *many("ward 2/sub", 4))
    (warning,) = Folder(root=tmp_path).load(8).warnings
    assert "No class folder is recognised: all 10 images are taken as healthy" in warning
    assert Folder(root=tmp_path, anomalous_names=("ward 2",)).load(8).warnings == ()


def test_unrecognised_training_folders_are_reported(tmp_path: Path) -> None:
    write(tmp_path, *many("train/ward1", 6), *many("test/normal", 2), *many("test/bad", 2))
    (warning,) = Folder(root=tmp_path).load(8).warnings
    assert "all 6 images" in warning


@pytest.mark.parametrize("folders", [(".",), ("normal",), ("train/good", "test/good", "test/bad")])
def test_flat_and_known_folders_give_no_warning(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        write(tmp_path, *many(folder, 5))
    assert Folder(root=tmp_path).load(8).warnings == ()


def test_a_test_set_without_known_anomalies_is_reported(tmp_path: Path) -> None:
    write(tmp_path, *many("train", 5), *many("test/odd", 2))
    assert any("No test image" in warning for warning in Folder(root=tmp_path).load(8).warnings)


def test_empty_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no image"):
        counts(tmp_path)
    with pytest.raises(DataError, match="There is no folder or file"):
        counts(tmp_path / "absent")
    write(tmp_path, "one.png")
    with pytest.raises(DataError, match="at least 2"):
        counts(tmp_path)


def test_order_is_natural() -> None:
    names = ["b10", "b9", "a", "B2", "1", "10", "2"]
    assert [p.name for p in natural(map(Path, names))] == ["1", "2", "10", "a", "B2", "b9", "b10"]
