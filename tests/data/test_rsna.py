"""RSNA: which images are taken, how patients are split, and where opacities are."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.image_set import ANOMALOUS, Box, Splits
from squid.data.prepare import MAPPING, main
from squid.data.rsna import IMAGES, Rsna
from squid.errors import DataError

OTHER = "No Lung Opacity / Not Normal"


def write(root: Path) -> Path:
    """90 images of 60 patients: 45 normal, 30 with opacity, 15 of the third class."""
    rng = np.random.default_rng(0)
    (root / "stage_2_train_images").mkdir(parents=True)
    classes, labels, patients = [], [], []
    for i in range(90):
        kind = ("Normal", "Normal", "Normal", "Lung Opacity", "Lung Opacity", OTHER)[i % 6]
        pixels = rng.integers(0, 256, size=(16, 16), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(root / "stage_2_train_images" / f"image{i}.png")
        classes += [[f"image{i}", kind]] * (2 if kind == "Lung Opacity" else 1)
        labels += [[f"image{i}", 256, 512, 128, 64, 1], [f"image{i}", 0, 0, 512, 256, 1]]
        if kind != "Lung Opacity":
            labels[-2:] = [[f"image{i}", "", "", "", "", 0]]
        age, view = (10 if i % 9 == 8 else 40), ("AP" if i % 5 == 4 else "PA")
        patients.append([f"image{i}", -1 if i == 7 else i % 60, view, "M", age])
    table(root, "stage_2_detailed_class_info.csv", ["patientId", "class"], classes)
    sides = ["x", "y", "width", "height"]
    table(root, "stage_2_train_labels.csv", ["patientId", *sides, "Target"], labels)
    table(root, "rsna_nih.csv", ["patientId", "nih_patient", "view", "sex", "age"], patients)
    return root


def table(root: Path, name: str, columns: list[str], rows: list[list[object]]) -> None:
    with (root / name).open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def load(root: Path, **fields: object) -> Splits:
    return Rsna.model_validate({"root": root, **fields}).load(8)


def every(splits: Splits, column: str) -> set[str]:
    return {value for _, images in splits.items() for value in images.columns[column]}


def test_views_and_ages_are_chosen(tmp_path: Path) -> None:
    root = write(tmp_path)
    assert every(load(root), "view") == {"PA", "AP"}
    assert every(load(root, view="PA"), "view") == {"PA"}
    assert every(load(root), "age") == {"40"}
    assert every(load(root, minimum_age=0), "age") == {"10", "40"}


def test_training_is_healthy_and_opacities_of_others_are_held_out(tmp_path: Path) -> None:
    splits = load(write(tmp_path))
    train, validation, test = splits.table()
    assert (train.normal, train.anomalous) > (10, 0)
    assert train.anomalous == 0
    assert min(validation.normal, validation.anomalous, test.normal, test.anomalous) > 0
    patients = [set(images.patients or ()) for _, images in splits.items()]
    assert not patients[0] & patients[1]
    assert not patients[0] & patients[2]
    assert not patients[1] & patients[2]


def test_a_patient_is_in_one_split_whatever_is_read(tmp_path: Path) -> None:
    root = write(tmp_path)
    every = {name: set(images.patients or ()) for name, images in load(root).items()}
    for view in ("PA", "AP"):
        for name, images in load(root, view=view).items():
            assert set(images.patients or ()) <= every[name]
    test = load(root, validation_share=0.3).test
    assert set(test.names) == set(load(root).test.names)
    (root / "stage_2_train_images" / "image3.png").unlink()
    for name, images in load(root).items():
        assert set(images.patients or ()) <= every[name]


def test_opacities_have_boxes_in_shares_of_the_image(tmp_path: Path) -> None:
    test = load(write(tmp_path)).test
    assert test.boxes is not None
    expected = (
        Box("Lung Opacity", 0.25, 0.5, 0.125, 0.0625),
        Box("Lung Opacity", 0.0, 0.0, 0.5, 0.25),
    )
    for label, boxes in zip(test.labels, test.boxes, strict=True):
        assert boxes == (expected if label == ANOMALOUS else ())


def test_the_third_class_is_a_finding_of_its_own_where_it_is_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path)
    findings = [set(load(root, not_normal=taken).test.findings or ()) for taken in (False, True)]
    assert findings == [{"", "Lung Opacity"}, {"", "Lung Opacity", OTHER}]


def test_images_of_unknown_patients_are_left_out_with_a_warning(tmp_path: Path) -> None:
    splits = load(write(tmp_path))
    assert splits.warnings == ("1 images were left out: their patients are not known.",)
    assert not any("image7" in images.names for _, images in splits.items())


def test_rows_of_the_tables_without_a_file_are_counted(tmp_path: Path) -> None:
    root = write(tmp_path)
    for number in (1, 3):
        (root / IMAGES / f"image{number}.png").unlink()
    missing, _ = load(root).warnings
    assert missing == f"2 images were left out: their files are not in {root / IMAGES}."
    # A row of another view than the one asked for is no loss.
    assert not any("files" in warning for warning in load(root, view="AP").warnings)


def test_the_table_of_patients_is_made_from_the_published_mapping(tmp_path: Path) -> None:
    before = load(write(tmp_path))
    with (tmp_path / "rsna_nih.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = {row["patientId"]: f"{i:08d}_000.png" for i, row in enumerate(rows)}
    mapping = [{"subset_img_id": image, "img_id": name} for image, name in names.items()]
    (tmp_path / MAPPING).write_text(json.dumps(mapping))
    columns = ["Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender",
               "View Position"]  # fmt: skip
    table(
        tmp_path,
        "Data_Entry_2017_v2020.csv",
        columns,
        [
            [names[row["patientId"]], "No Finding", row["nih_patient"], row["age"], row["sex"],
             row["view"]]
            for row in rows
        ],
    )  # fmt: skip
    (tmp_path / "rsna_nih.csv").unlink()
    with pytest.raises(DataError, match=r"make it with: python -m squid\.data\.prepare rsna"):
        load(tmp_path)
    main(["rsna", "--root", str(tmp_path)])
    assert load(tmp_path).fingerprint == before.fingerprint


def test_a_mistake_of_the_command_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["rsna", "--root", str(tmp_path)])
    assert "mappings_2018.json cannot be read: No such file" in capsys.readouterr().err


def test_no_image_of_a_view_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path)
    with pytest.raises(DataError, match="no image for view = 'AP'"):
        load(root, view="AP", minimum_age=99)


def test_the_published_images_give_the_known_splits(shared: Callable[..., Path]) -> None:
    splits = Rsna(root=shared("data", "rsna128"), view="PA").load(128)
    assert [tuple(row) for row in splits.table()] == [
        ("train", 1916, 0, 1733), ("validation", 246, 133, 323), ("test", 724, 403, 998),
    ]  # fmt: skip
    assert splits.fingerprint == "737d625ed8e9156f"
