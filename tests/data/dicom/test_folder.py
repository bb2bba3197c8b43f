"""Training from DICOM folders: patients, labels and views from headers, RSNA as published."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from squid.data.checking import check_folder
from squid.data.folder import Folder
from squid.data.image import read_resized
from squid.data.image_set import Splits
from squid.data.inputs import open_images
from squid.data.reading import DicomReading, Reading
from squid.data.rsna import Rsna
from squid.errors import DataError
from squid.training import fit

RECIPE = """
title = "Frontal images, over all that can be stored"
false_positive_rate = 0.5

[data]
name = "folder"
root = "."

[data.dicom]
voi = "full"
views = ["PA"]

[method]
name = "auto_encoder"
size = 48
channels = [4, 8]
hidden = 16
latent = 4
epochs = 1
batch_size = 4

[train]
augment = false
"""
REPORT = "1.2.840.10008.5.1.4.1.1.88.33"
Make = Callable[..., bytes]
Write = Callable[..., None]


@pytest.fixture
def write(make: Make, tmp_path: Path) -> Write:
    """Writes a file with random pixels, in a folder for its study as archives do."""

    def write_one(patient: str, study: int, image: int = 0, **elements: str) -> None:
        folder = tmp_path / elements.pop("folder", f"study{study}")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng([study, image]).integers(0, 4096, (20, 20), np.uint16)
        described = {
            **{"PatientID": patient, "StudyInstanceUID": f"1.2.{study}", "BitsStored": 12},
            **{"SOPInstanceUID": f"1.2.{study}.{image}", **elements},
        }
        (folder / f"IM{image:04}").write_bytes(make(pixels, **described))

    return write_one


def load(root: Path, **fields: object) -> Splits:
    return Folder.model_validate({"root": root, **fields}).load(16)


def sizes(splits: Splits) -> list[tuple[int, int]]:
    return [(row.normal, row.anomalous) for row in splits.table()]


def test_no_patient_of_an_archive_is_in_two_splits(write: Write, tmp_path: Path) -> None:
    for study in range(40):
        for image in range(1 + study % 2):
            write(f"PAT{study % 13}", study, image)
    splits = load(tmp_path)
    patients = [set(images.patients or ()) for _, images in splits.items()]
    assert [len(images) for _, images in splits.items()] == [48, 12, 0]
    assert not patients[0] & patients[1]
    assert len(patients[0] | patients[1]) == 13
    assert not any("PAT" in patient for patient in patients[0])
    # Keys of patients differ from process to process; splits must not.
    assert load(tmp_path).fingerprint == splits.fingerprint


def test_studies_stand_for_patients_whose_names_were_removed(write: Write, tmp_path: Path) -> None:
    for study in range(12):
        for image in range(2):
            write("ANON", study, image)
    splits = load(tmp_path)
    assert splits.train.patients is not None
    assert set(splits.train.patients) <= {f"1.2.{study}" for study in range(12)}
    assert not set(splits.train.patients) & set(splits.validation.patients or ())
    assert "each study is taken for a patient" in splits.warnings[0]


def test_class_folders_hold_dicom_files_as_they_hold_others(write: Write, tmp_path: Path) -> None:
    for study in range(20):
        write(f"P{study}", study, folder=f"normal/{study}")
    for study in range(20, 25):
        write(f"P{study}", study, folder=f"abnormal/{study}")
    assert sizes(load(tmp_path)) == [(12, 0), (4, 0), (4, 5)]


def label(root: Path, *rows: tuple[str, str]) -> None:
    with (root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "finding"), *rows])


def test_a_table_names_findings_by_study_by_image_or_by_path(write: Write, tmp_path: Path) -> None:
    for study in range(12):
        write(f"P{study}", study)
    healthy = [(f"1.2.{study}", "Normal") for study in range(9)]
    label(tmp_path, *healthy, ("1.2.9.0", "nodule"), ("study10/IM0000", "effusion"))
    splits = load(tmp_path)  # the twelfth study is in no row
    assert sizes(splits) == [(5, 0), (2, 0), (2, 2)]
    assert set(splits.test.findings or ()) == {"", "nodule", "effusion"}
    assert "1 file was left out: labels.csv does not name them." in splits.warnings


def test_what_files_say_of_themselves_is_kept_unless_the_table_says_other(
    write: Write, tmp_path: Path
) -> None:
    for study in range(10):
        taken = {"ViewPosition": "PA" if study % 2 else "AP", "PatientAge": "061Y"}
        write(f"P{study}", study, **taken, Manufacturer=f"maker {study % 3}")
    columns = load(tmp_path).train.columns
    assert set(columns) == {"view", "age_band", "manufacturer"}
    assert set(columns["view"]) == {"PA", "AP"}
    assert set(columns["age_band"]) == {"60 to 79"}
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        rows = [(f"1.2.{study}", "", "lateral") for study in range(10)]
        csv.writer(file).writerows([("image", "finding", "view"), *rows])
    assert set(load(tmp_path).train.columns["view"]) == {"lateral"}


def test_a_table_with_one_image_twice_is_refused(write: Write, tmp_path: Path) -> None:
    write("P", 0)
    label(tmp_path, ("1.2.0", ""), ("1.2.0", "nodule"))
    with pytest.raises(DataError, match=r"names '1\.2\.0' twice"):
        load(tmp_path)


def test_other_views_are_left_out_and_counted(write: Write, tmp_path: Path) -> None:
    for study in range(10):
        write(f"P{study}", study, 0, ViewPosition="PA")
        write(f"P{study}", study, 1, ViewPosition="LL")
    write("P10", 10)
    splits = load(tmp_path, dicom={"views": ["PA"]})
    assert sizes(splits) == [(8, 0), (2, 0), (0, 0)]
    assert "10 files were left out: the view is LL, not PA." in splits.warnings
    assert "1 file was left out: the file names no view, not PA." in splits.warnings


def test_reports_and_raw_images_of_a_study_are_left_out(write: Write, tmp_path: Path) -> None:
    for study in range(10):
        write(f"P{study}", study, 0, PresentationIntentType="FOR PRESENTATION")
        write(f"P{study}", study, 1, PresentationIntentType="FOR PROCESSING")
        write(f"P{study}", study, 2, sop_class=REPORT, Modality="SR")
    splits = load(tmp_path)
    assert sizes(splits) == [(8, 0), (2, 0), (0, 0)]
    assert any(w.startswith("10 files were left out: each is for") for w in splits.warnings)
    assert any("each is no radiograph (modality SR" in warning for warning in splits.warnings)


RAW = {"PresentationIntentType": "FOR PROCESSING"}
TWIN = "for processing, and its study holds the image for presentation"


def test_a_raw_image_is_left_out_where_its_study_shows_the_same(
    write: Write, tmp_path: Path
) -> None:
    """The same view, or an unknown one; in training, in checking and in scoring."""
    screenshot = {"sop_class": "1.2.840.10008.5.1.4.1.1.7"}
    for study, image, elements in (
        (0, 0, {"ViewPosition": "PA"}),
        (0, 1, {"ViewPosition": "PA", **RAW}),  # a twin
        (0, 2, {"ViewPosition": "LL", **RAW}),
        (0, 3, {**RAW}),  # a twin, as far as is known
        (1, 0, {"ViewPosition": "PA", **RAW}),  # the only one of its study
        (1, 1, {"ViewPosition": "PA", **screenshot}),  # which shows a screen
        (2, 0, {}),
        (2, 1, {"ViewPosition": "LL", **RAW}),  # a twin, as far as is known
    ):
        write(f"P{study}", study, image, **elements)
    twins = ["study0/IM0001", "study0/IM0003", "study2/IM0001"]
    reading = DicomReading(for_processing="window")
    folder = Folder(root=tmp_path, dicom=reading)
    splits = folder.load(16)
    assert len(splits.train) + len(splits.validation) == 8 - len(twins)
    assert f"3 files were left out: {TWIN}." in splits.warnings
    checked = check_folder(folder)
    assert [(one.name, one.left_out) for one in checked.files if one.left_out] == [
        (name, TWIN) for name in twins
    ]
    opened = open_images(tmp_path, 16, reading=Reading(dicom=reading))
    assert opened.left_out == tuple((str(tmp_path / name), TWIN) for name in twins)
    assert len(opened.sources) == 8 - len(twins)
    # By default a raw image has no score, whatever lies beside it.
    assert len(open_images(tmp_path, 16).sources) == 8


@pytest.mark.parametrize("asked", [{"views": ["PA", "AP"]}, {"body_parts": ["CHEST"]}])
def test_a_file_without_a_header_names_no_view(
    write: Write, tmp_path: Path, asked: dict[str, list[str]]
) -> None:
    """A thumbnail that an archive exports beside its images is neither trained on nor scored."""
    for study in range(10):
        write(f"P{study}", study, ViewPosition="PA", BodyPartExamined="CHEST")
    thumb = tmp_path / "study0" / "THUMB.JPG"
    noise = np.random.default_rng(0).integers(0, 255, (20, 20), np.uint8)
    PIL.Image.fromarray(noise).save(thumb, format="JPEG")
    (what,) = asked
    names_none = f"the file names no {what[:-1].replace('_', ' ')}"
    reading = Reading(dicom=DicomReading.model_validate(asked))
    assert names_none in read_resized(thumb, 16, reading=reading).not_applicable
    splits = load(tmp_path, dicom=asked)
    assert sizes(splits) == [(8, 0), (2, 0), (0, 0)]
    (warning,) = (text for text in splits.warnings if names_none in text)
    assert str(thumb) in warning
    # Where nothing is asked for, it is an image as others are; one in memory is what it is given
    # for.
    assert read_resized(thumb, 16).not_applicable == ""
    assert open_images(noise, 16, reading=reading).not_applicable == ("",)


def test_why_no_image_of_a_folder_is_used_is_said(write: Write, tmp_path: Path) -> None:
    for study in range(10):
        write(f"P{study}", study, ViewPosition="PA")
    with pytest.raises(DataError, match=r"10 files were left out: the view is PA, not PAA\."):
        load(tmp_path, dicom={"views": ["PAA"]})


def test_the_recipe_reads_in_training_as_in_scoring(write: Write, tmp_path: Path) -> None:
    for study in range(12):
        write(f"P{study}", study, ViewPosition="PA")
    write("P12", 12, ViewPosition="LL")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    detector = fit(tmp_path, recipe=recipe, device="cpu")
    frontal, lateral = detector.predict([tmp_path / f"study{n}/IM0000" for n in (0, 12)])
    assert frontal.score is not None
    assert frontal.steps == ("DICOM, uncompressed", "full range: 0 to 4095")
    assert lateral.score is None
    assert lateral.not_applicable == "not applicable: the view is LL, not PA"


def test_a_list_of_files_is_split_by_patient_too(write: Write, tmp_path: Path) -> None:
    for study in range(40):
        write(f"P{study % 20}", study, ViewPosition="PA")
    write("P20", 40, ViewPosition="LL")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    files = sorted(tmp_path.glob("study*/IM0000"))
    detector = fit(files, recipe=recipe, device="cpu")
    # The lateral image is not trained on, and a patient's two images are held out together.
    assert (detector.calibration.count, detector.calibration.heldout) == (36, 4)


def test_rsna_is_read_as_published(make: Make, tmp_path: Path) -> None:
    images = tmp_path / "stage_2_train_images"
    images.mkdir()
    tables = {
        "stage_2_detailed_class_info.csv": [("patientId", "class")],
        "stage_2_train_labels.csv": [("patientId", "x", "y", "width", "height", "Target")],
        "rsna_nih.csv": [("patientId", "nih_patient", "view", "sex", "age")],
    }
    stored = {}
    for number in range(40):
        name, healthy = f"image{number}", number % 2 == 0
        stored[name] = np.random.default_rng(number).integers(0, 256, (16, 16), np.uint8)
        capture = make(stored[name], sop_class="1.2.840.10008.5.1.4.1.1.7", Modality="CR")
        (images / f"{name}.dcm").write_bytes(capture)
        kind = "Normal" if healthy else "Lung Opacity"
        tables["stage_2_detailed_class_info.csv"].append((name, kind))
        tables["stage_2_train_labels.csv"].append((name, *[""] * 4, "0"))
        tables["rsna_nih.csv"].append((name, str(number), "PA", "F", "50"))
    for table, rows in tables.items():
        with (tmp_path / table).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    splits = Rsna(root=tmp_path, dicom={"voi": "full"}).load(16)
    assert sum(len(images) for _, images in splits.items()) > 20
    for name, pixels in zip(splits.train.names, splits.train.pixels, strict=True):
        assert np.array_equal(pixels[0], stored[name])
