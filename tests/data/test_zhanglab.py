"""ZhangLab: the paper's counts, by patient, from the npz files and from the published folders."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.image_set import ANOMALOUS, ImageSet, Splits
from squid.data.zhanglab import ZhangLab, patient_of
from squid.errors import DataError


@pytest.fixture(scope="module")
def splits(shared: Callable[..., Path]) -> Splits:
    return ZhangLab(root=shared("data", "zhanglab128")).load(128)


def test_the_papers_counts(splits: Splits) -> None:
    counts = [(row.normal, row.anomalous) for row in splits.table()]
    assert counts == [(1249, 0), (100, 100), (234, 390)]
    assert splits.official


def test_our_split_stays_the_same(splits: Splits) -> None:
    assert splits.fingerprint == "4ebdbbb1b4909755"


def test_no_patient_is_in_two_splits_and_the_official_overlap_is_reported(splits: Splits) -> None:
    train, validation, test = (set(images.patients or ()) for _, images in splits.items())
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert any("96 patients" in warning and "167" in warning for warning in splits.warnings)


def test_how_many_images_would_be_shared_if_a_number_alone_named_a_child(splits: Splits) -> None:
    """docs/results.md says so: nothing tells whether IM-n and NORMAL2-IM-n are one child."""

    def children(images: ImageSet) -> list[str]:
        return [patient.removeprefix("NORMAL2-") for patient in images.normals.patients or ()]

    train, validation, test = (children(images) for _, images in splits.items())
    shared = [
        sum(child in set(others) for child in some)
        for some, others in ((train, test), (train, validation), (test, validation))
    ]
    assert shared == [87, 34, 7]


def test_contamination_takes_pneumonia_of_other_patients(shared: Callable[..., Path]) -> None:
    splits = ZhangLab(root=shared("data", "zhanglab128"), contamination=0.1).load(32)
    row = splits.table()[0]
    assert (row.normal, row.anomalous) == (1249 - 125, 125)
    sick = set(splits.train.anomalous.patients or ())
    assert not sick & set(splits.test.patients or ())
    assert not sick & set(splits.validation.patients or ())


def test_more_contamination_than_there_is_pneumonia_is_refused(shared: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"contamination = 0\.95 needs 1187 .* has 1172"):
        ZhangLab(root=shared("data", "zhanglab128"), contamination=0.95).load(16)


def test_folders_give_the_same_pixels_as_the_arrays(
    shared: Callable[..., Path], splits: Splits
) -> None:
    folders = ZhangLab(root=shared("data", "zhanglab_originals")).load(128)
    assert [tuple(row)[1:3] for row in folders.table()] == [(16, 0), (4, 0), (16, 16)]
    assert "Validation holds 4 normal and 0 pneumonia" in folders.warnings[0]
    places = [splits.test.names.index(name) for name in folders.test.names]
    expected = splits.test.pixels[places].int()
    assert (folders.test.pixels.int() - expected).abs().max() <= 1


def test_names_give_patients() -> None:
    assert patient_of("person1000_bacteria_2931.jpeg") == "person1000"
    assert patient_of("IM-0011-0001-0002.jpeg") == "IM-0011"
    assert patient_of("NORMAL2-IM-0011-0001.jpeg") == "NORMAL2-IM-0011"


def test_kaggle_folders_in_any_case_and_val_joins_train(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def write(part: str, kind: str, names: list[str]) -> None:
        folder = tmp_path / "chest_xray" / part / kind
        folder.mkdir(parents=True)
        for name in names:
            pixels = rng.integers(0, 255, size=(16, 16), dtype=np.uint8)
            PIL.Image.fromarray(pixels).save(folder / name, format="PNG")

    write("train", "normal", [f"IM-{i:04d}-0001.jpeg" for i in range(10)])
    write("val", "NORMAL", [f"NORMAL2-IM-{i:04d}-0001.jpeg" for i in range(10)])
    write("train", "Pneumonia", [f"person{i}_virus_{i}.jpeg" for i in range(1, 9)])
    write("test", "NORMAL", ["IM-0900-0001.jpeg"])
    write("test", "PNEUMONIA", ["person1_bacteria_7.jpeg", "person2_bacteria_8.jpeg"])
    splits = ZhangLab(root=tmp_path, validation_anomalous=5, validation_normals=3).load(9)
    assert [tuple(row)[1:3] for row in splits.table()] == [(17, 0), (3, 5), (1, 2)]
    sick = splits.validation.select(splits.validation.labels == ANOMALOUS)
    assert not {"person1", "person2"} & set(sick.patients or ())


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither the npz files"):
        ZhangLab(root=tmp_path).load(16)
    with pytest.raises(DataError, match="no folder or file"):
        ZhangLab(root=tmp_path / "absent").load(16)
