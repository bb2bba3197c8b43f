"""`squid score --dicom-out`: files of results, and what is refused."""

import csv
import hashlib
import json
from pathlib import Path

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


def test_an_image_that_is_not_dicom_is_refused_before_scoring(refused, tiny_run, study, tmp_path):
    (study / "note.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = refused("score", tiny_run, study, "--dicom-out", tmp_path / "results")
    assert "note.png is not a DICOM file, so it cannot have DICOM results" in said
    assert not (tmp_path / "results").exists()


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
