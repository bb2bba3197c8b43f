"""Sets are selected and joined, nothing leaks between splits, a fingerprint sees every change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from squid.data.image_set import (
    ANOMALOUS,
    NORMAL,
    Box,
    FileSet,
    ImageSet,
    Splits,
    check,
    draw_groups,
    join,
    split_by_patient,
)
from squid.errors import DataError


def images(start: int, n: int = 4, patients: tuple[str, ...] | None = None) -> ImageSet:
    values = torch.arange(start, start + n, dtype=torch.uint8)
    pixels = values[:, None, None, None].repeat(1, 1, 2, 2)
    pixels[..., 1, 1] = 255
    return ImageSet(
        pixels=pixels,
        labels=np.arange(n) % 2,
        names=tuple(f"image{start + i}" for i in range(n)),
        patients=patients,
    )


def splits(official: bool = False) -> Splits:
    return Splits(images(0), images(10), images(20), official)


def test_arrays_of_one_gray_value_are_left_out_by_name() -> None:
    given = splits()
    given.test.pixels[2] = 7
    checked = check(given)
    assert checked.test.names == ("image20", "image21", "image23")
    assert checked.warnings == ("Left out: image22 of test: all pixels have one gray value.",)
    assert len(checked.train) == len(checked.validation) == 4
    given.train.pixels[:] = 7
    with pytest.raises(DataError, match="no normal image to train on"):
        check(given)


def test_select_takes_masks_and_places_in_order() -> None:
    chosen = images(0, patients=("a", "b", "c", "d")).select([3, 1])
    assert chosen.names == ("image3", "image1")
    assert chosen.pixels[:, 0, 0, 0].tolist() == [3, 1]
    assert chosen.patients == ("d", "b")
    normals = images(0).normals
    assert normals.names == ("image0", "image2")
    assert (normals.labels == NORMAL).all()


def described() -> ImageSet:
    """Four images with everything that can be known of them."""
    return replace(
        images(0, patients=("a", "b", "c", "d")),
        findings=("", "Mass", "", "Edema"),
        cells=np.arange(36).reshape(4, 9),
        boxes=((), (Box("Mass", 0.1, 0.2, 0.3, 0.4),), (), ()),
        columns={"view": ("PA", "AP", "PA", "AP"), "age": ("30", "40", "50", "")},
    )


def test_select_keeps_boxes_and_columns_with_their_images() -> None:
    chosen = described().select([3, 1])
    assert chosen.boxes == ((), (Box("Mass", 0.1, 0.2, 0.3, 0.4),))
    assert chosen.columns == {"view": ("AP", "AP"), "age": ("", "40")}
    assert chosen.findings == ("Edema", "Mass")
    assert chosen.cells is not None
    assert chosen.cells[0, 0] == 27


def test_join_keeps_what_is_known_of_both() -> None:
    others = replace(described(), names=("p", "q", "r", "s"), columns={"view": ("PA",) * 4})
    both = join(described(), others)
    assert both.names == (*described().names, "p", "q", "r", "s")
    assert both.columns == {"view": ("PA", "AP", "PA", "AP", "PA", "PA", "PA", "PA")}
    assert both.boxes is not None
    assert len(both.boxes) == 8
    assert join(described(), images(10)).boxes is None


def test_files_are_selected_and_joined_as_images_are() -> None:
    files = FileSet(
        paths=(Path("a.png"), Path("b.png")),
        labels=np.array([0, 1]),
        names=("a", "b"),
        columns={"view": ("PA", "AP")},
    )
    second = files.select([False, True])
    assert second.paths == (Path("b.png"),)
    assert second.columns == {"view": ("AP",)}
    assert join(files, second).names == ("a", "b", "b")


def test_lengths_and_names_are_checked() -> None:
    with pytest.raises(ValueError, match="3 labels for 4 names"):
        replace(images(0), labels=np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match="1 view for 4 names"):
        replace(images(0), columns={"view": ("PA",)})
    with pytest.raises(DataError, match="same name"):
        replace(images(0), names=("a", "a", "b", "c"))


def test_the_same_pixels_in_two_splits_name_both_images() -> None:
    copy = replace(images(2), names=("p", "q", "r", "s"))
    with pytest.raises(DataError, match=r"'p' of test .* 'image2' of train"):
        check(replace(splits(), test=copy))


def test_copies_inside_one_split_are_allowed() -> None:
    twice = join(images(0), replace(images(0), names=("p", "q", "r", "s")))
    assert check(replace(splits(), train=twice)).warnings == ()


def test_a_patient_in_two_splits_is_an_error_or_an_official_warning() -> None:
    train = images(0, patients=("ann", "bob", "cem", "cem"))
    test = images(20, patients=("dora", "bob", "eve", "eve"))
    leaking = replace(splits(), train=train, test=test)
    with pytest.raises(DataError, match="1 patients are in train and in test, for example 'bob'"):
        check(leaking)
    (warning,) = check(replace(leaking, official=True)).warnings
    assert "'bob'" in warning


def test_nothing_to_train_on_is_an_error() -> None:
    with pytest.raises(DataError, match="no normal image"):
        check(replace(splits(), train=images(0).select([])))


def test_table_counts_images_and_patients() -> None:
    train = images(0, patients=("ann", "bob", "cem", "cem"))
    rows = replace(splits(), train=train).table()
    assert rows[0] == ("train", 2, 2, 3)
    assert rows[2] == ("test", 2, 2, None)


@pytest.mark.parametrize("what", ["pixels", "labels", "names", "split"])
def test_the_fingerprint_sees_every_change(what: str) -> None:
    before = splits()
    test = before.test
    pixels = test.pixels.clone()
    pixels[1, 0, 1, 1] += 1
    after = {
        "pixels": replace(before, test=replace(test, pixels=pixels)),
        "labels": replace(before, test=replace(test, labels=1 - test.labels)),
        "names": replace(before, test=replace(test, names=("a", "b", "c", "d"))),
        "split": replace(before, test=before.validation, validation=test),
    }[what]
    assert after.fingerprint != before.fingerprint
    assert splits().fingerprint == before.fingerprint


def test_groups_stay_whole() -> None:
    groups = ["a"] * 3 + ["b"] * 2 + list("cdefgh")
    mask = draw_groups(groups, 5, np.random.default_rng(0))
    assert mask.sum() == 5
    held = {group for group, is_held in zip(groups, mask, strict=True) if is_held}
    left = {group for group, is_held in zip(groups, mask, strict=True) if not is_held}
    assert not held & left


def test_a_patient_is_in_one_split_and_shares_count_patients() -> None:
    patients = [str(i % 40) for i in range(100)]
    groups = split_by_patient(patients, 0.1, 0.25, np.random.default_rng(0))
    of_patient = {patient: set(groups[np.array(patients) == patient]) for patient in patients}
    assert all(len(found) == 1 for found in of_patient.values())
    counts = [
        sum(found == {name} for found in of_patient.values()) for name in ("validation", "test")
    ]
    assert counts == [4, 10]


def test_sets_name_themselves_in_one_line() -> None:
    """A thousand images would else be printed as arrays."""
    pixels = torch.zeros(3, 1, 48, 48, dtype=torch.uint8)
    images = ImageSet(pixels, np.array([NORMAL, NORMAL, ANOMALOUS]), ("a", "b", "c"))
    assert repr(images) == "ImageSet(2 normal, 1 anomalous, 48 x 48 pixels)"
    splits = Splits(images.normals, images, images.anomalous, official=True)
    assert "\n" not in repr(splits)
    assert repr(splits).startswith("Splits(train=ImageSet(2 normal, 0 anomalous, 48 x 48 pixels), ")
    files = FileSet((Path("a.png"),), np.array([NORMAL]), ("a",))
    assert repr(files) == "FileSet(1 normal, 0 anomalous)"
