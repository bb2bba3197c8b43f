"""`squid score --dicom-out`: files of results, and what is refused."""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import PIL.Image
from pydicom import dcmread


def test_a_report_and_a_capture_for_each_image(squid, tiny_run, study, tmp_path):
    out = tmp_path / "results"
    code, _, said = squid("score", tiny_run, study, "--dicom-out", out)
    assert code == 0
    assert "4 DICOM files" in said
    made = [dcmread(path) for path in out.iterdir()]
    assert sorted(one.Modality for one in made) == ["OT", "OT", "SR", "SR"]
    sources = {dcmread(path).StudyInstanceUID for path in study.iterdir()}
    assert {one.StudyInstanceUID for one in made} == sources


def test_names_of_files_tell_nothing_and_stay_the_same(squid, tiny_run, study, tmp_path):
    out = tmp_path / "results"
    for _ in range(2):
        assert squid("score", tiny_run, study, "--dicom-out", out, "--gsps")[0] == 0
        assert len(list(out.iterdir())) == 6
    for path in out.iterdir():
        uid = dcmread(path).SOPInstanceUID
        assert path.name == f"{hashlib.sha256(uid.encode()).hexdigest()}.dcm"


def test_a_report_says_what_was_printed(squid, tiny_run, study, tmp_path, tool):
    out = tmp_path / "results"
    source = study / "IM0000"
    _, printed, _ = squid("score", tiny_run, source, "--dicom-out", out, "--format", "csv")
    (row,) = csv.DictReader(printed.splitlines())
    (report,) = (path for path in out.iterdir() if dcmread(path).Modality == "SR")
    shown = tool("dsrdump", "+Pl", report)
    assert f"SHA-256 of the model: {row['model']}" in shown
    assert f'"Anomaly score")="{float(row["score"]):.4f}'[:-2] in shown
    assert f'"{"Yes" if row["flagged"] == "True" else "No"}")' in shown
    assert "Step of reading: inverted, since zero is white" in shown


def test_a_heatmap_that_was_measured_to_show_nothing_is_in_no_object(squid, run, study, tmp_path):
    """The picture is gray but for its banner, and has its text; the state has no contour."""
    source = study / "IM0000"

    def made(out):
        code, _, said = squid("score", run, source, "--dicom-out", out, "--gsps")
        assert code == 0
        return {one.Modality: one for one in map(dcmread, out.iterdir())}, said

    before, said = made(tmp_path / "before")
    assert "heatmap is not shown" not in said
    assert squid("evaluate", run, "--device", "cpu")[0] == 0
    record = json.loads((run / "metrics.json").read_text())
    digits = record["by_selection"]["final"]["digits"][0]
    digits["localisation"] = dict.fromkeys(digits["localisation"], 0.468)
    (run / "metrics.json").write_text(json.dumps(record))
    after, said = made(tmp_path / "after")
    assert "heatmap is not shown: localisation AUC 46.8, guessing gives 50.0" in said
    coloured = [np.ptp(one["OT"].pixel_array[100:-140], axis=2).any() for one in (before, after)]
    assert coloured == [True, False]
    assert after["OT"].pixel_array[-140:].any()  # the caption
    (annotation,) = after["PR"].GraphicAnnotationSequence
    assert "GraphicObjectSequence" in before["PR"].GraphicAnnotationSequence[0]
    assert "GraphicObjectSequence" not in annotation
    assert "healthy images" in annotation.TextObjectSequence[0].UnformattedTextValue
    # Not the same object: an archive must keep both.
    assert before["OT"].SOPInstanceUID != after["OT"].SOPInstanceUID


def test_an_image_that_is_not_dicom_is_named_and_the_rest_has_results(
    squid, tiny_run, study, tmp_path
):
    noise = np.random.default_rng(0).integers(0, 256, (60, 50), dtype=np.uint8)
    PIL.Image.fromarray(noise).save(study / "photo.png")
    out = tmp_path / "results"
    code, _, said = squid("score", tiny_run, study, "--dicom-out", out)
    assert code == 3
    assert "photo.png: It is not a DICOM file" in said
    assert "3 found = 3 scored" in said
    assert len(list(out.iterdir())) == 4


def test_images_of_which_none_is_dicom_are_refused_before_scoring(
    refused, tiny_run, images, tmp_path
):
    said = refused("score", tiny_run, images, "--dicom-out", tmp_path / "results")
    assert "None of the 3 images is a DICOM file" in said
    assert not (tmp_path / "results").exists()


def test_two_rates_of_one_threshold_give_two_results(squid, run, study, tmp_path):
    """With 12 held-out images the highest score is the threshold of both."""
    found = {}
    for rate in ("0.05", "0.06"):
        out = tmp_path / rate
        assert squid("score", run, study, "--dicom-out", out, "--rate", rate)[0] == 0
        made = [dcmread(path) for path in out.iterdir()]
        found[rate] = {one.SOPInstanceUID for one in made}
        said = [element.value for one in made for element in one.iterall() if element.VR == "UT"]
        points = [text for text in said if text.startswith("Operating point: ")]
        assert len(points) == 2
        assert all("highest of 12 held-out scores, too few" in text for text in points)
    assert not found["0.05"] & found["0.06"]


def test_an_image_without_a_study_is_named_and_the_rest_has_results(
    squid, tiny_run, study, tmp_path
):
    lost = dcmread(study / "IM0000")
    del lost.StudyInstanceUID
    lost.save_as(study / "IM0000")
    code, _, said = squid("score", tiny_run, study, "--dicom-out", tmp_path / "results")
    assert code == 3
    assert "IM0000: The image has no StudyInstanceUID" in said
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_results_are_not_scored_with_the_study_they_lie_in(squid, tiny_run, study):
    """A later export of a study holds the captures that were sent to it."""
    for _ in range(2):
        code, _, said = squid("score", tiny_run, study, "--dicom-out", study / "results")
        assert code == 0
        assert len(list((study / "results").iterdir())) == 4
    assert "and 3 more: a result of SQUID and no radiograph" in said
    assert "6 found = 2 scored + 0 skipped + 4 left out + 0 not applicable" in said


def test_reports_and_raw_images_of_a_study_are_left_out(squid, tiny_run, study, tmp_path):
    """They are no images for a reader, and nothing is wrong with them; alone one is refused."""
    raw, report = dcmread(study / "IM0000"), dcmread(study / "IM0001")
    raw.PresentationIntentType = "FOR PROCESSING"
    raw.save_as(study / "IM0002")
    report.SOPClassUID, report.Modality = "1.2.840.10008.5.1.4.1.1.88.33", "SR"
    del report.PixelData
    report.save_as(study / "IM0003")
    code, printed, said = squid("score", tiny_run, study, "--format", "json")
    assert code == 0
    found = json.loads(printed)
    reasons = {Path(one["image"]).name: one["reason"] for one in found["left_out"]}
    assert sorted(reasons) == ["IM0002", "IM0003"]
    assert reasons["IM0002"].startswith("for processing, not for presentation")
    assert reasons["IM0003"].startswith("no radiograph (modality SR")
    assert found["counts"] == {"scored": 2, "skipped": 0, "left_out": 2, "not_applicable": 0}
    code, _, said = squid("score", tiny_run, study, "--strict")
    assert code == 2
    assert "IM0002 is for processing" in said


def test_a_presentation_state_alone_is_refused(refused, tiny_run, study):
    assert "--dicom-out" in refused("score", tiny_run, study, "--gsps")
