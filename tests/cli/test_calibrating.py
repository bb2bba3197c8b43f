"""`squid calibrate` through the command."""

import json

import numpy as np
import PIL.Image
import pytest

from squid.run import Run


@pytest.fixture
def healthy(tmp_path):
    folder = tmp_path / "healthy"
    folder.mkdir()
    for i in range(30):
        save(folder / f"{i}.png", seed=i)
    return folder


@pytest.fixture
def calibrate(squid, run):
    return lambda *words: squid("calibrate", "--device", "cpu", run, *words)


@pytest.fixture
def calibrate_refused(refused, run):
    return lambda *words: refused("calibrate", "--device", "cpu", run, *words)


def test_a_site_is_calibrated_beside_the_run_and_compared(squid, calibrate, run, healthy):
    before = (run / "calibration.json").read_bytes()
    code, out, _ = calibrate(healthy, "--name", "here", "--rate", "0.2", "--confidence", "0.9")
    assert code == 0
    assert "here, 30 healthy images" in out
    assert "flags 20 % of healthy images with 90 % confidence; with 30 held-out images" in out
    assert "of these 30 healthy images" in out
    assert "Mann-Whitney" in out
    assert "A shift of" in out
    assert (run / "calibration.json").read_bytes() == before
    kept = json.loads((run / "calibrations/here.json").read_text())
    assert (len(kept["heldout_scores"]), kept["rate"], kept["confidence"]) == (30, 0.2, 0.9)
    assert set(kept["heldout_facts"]) == {"brightness", "contrast", "sharpness"}
    words = ("--device", "cpu", "--calibration", "here", "--format", "json")
    _, out, _ = squid("score", run, healthy, *words)
    found = json.loads(out)
    assert (found["calibration"], found["rate"], found["confidence"]) == ("here", 0.2, 0.9)
    # 24 of 30 scores lie below a threshold that holds on average; with confidence more do.
    assert sum(row["flagged"] for row in found["images"]) < 6


def test_nothing_is_overwritten_unasked(calibrate, calibrate_refused, run, healthy):
    assert calibrate(healthy, "--name", "here", "--dry-run")[0] == 0
    assert not (run / "calibrations").exists()
    assert calibrate(healthy, "--name", "here")[0] == 0
    kept = (run / "calibrations/here.json").read_bytes()
    again = (healthy, "--rate", "0.3", "--name")
    assert "--overwrite" in calibrate_refused(*again, "here")
    assert (run / "calibrations/here.json").read_bytes() == kept
    assert calibrate(healthy, "--name", "here", "--rate", "0.3", "--overwrite")[0] == 0
    assert (run / "calibrations/here.json").read_bytes() != kept
    assert "cannot name a calibration" in calibrate_refused(*again, "../here")
    assert "names the run's own calibration" in calibrate_refused(*again, "run")


def test_calibrations_of_a_run_are_shown_side_by_side(calibrate, run, healthy, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for i in range(20):
        save(other / f"{i}.png", seed=100 + i)
    _, out, _ = calibrate(other, "--name", "there", "--on-average", "--rate", "0.2")
    assert "flags of these" not in out  # there is none of another site
    _, out, _ = calibrate(healthy, "--name", "here", "--on-average", "--rate", "0.2")
    rows = rows_of(out)
    assert [row[:2] for row in rows] == [["run", "12"], ["there", "20"], ["here, new", "30"]]
    kept = Run(run).site_calibration("there").threshold(0.2)
    flagged = int((np.array(Run(run).site_calibration("here").heldout_scores) >= kept).sum())
    assert rows[1][2:] == [f"{kept:.6g}", f"{flagged} ({100 * flagged / 30:.1f} %)"]
    assert "until now" not in out


def test_what_is_overwritten_is_compared_first(calibrate, run, healthy):
    calibrate(healthy, "--name", "here")
    before = Run(run).site_calibration("here").operating_point(0.1, 0.95).threshold
    for i in range(30):
        PIL.Image.fromarray(noise(i) // 4).save(healthy / f"{i}.png")
    for last in ("--dry-run", "--overwrite"):
        _, out, _ = calibrate(healthy, "--name", "here", last)
        assert f"Threshold of here until now: {before:.9g}: flags 10 %" in out
        assert "differ from the 30 of the calibration of that name" in out
        assert [row[0] for row in rows_of(out)] == ["run", "here until now", "here, new"]
    assert Run(run).site_calibration("here").operating_point(0.1, 0.95).threshold != before


def test_pages_do_not_state_a_rate_that_too_few_images_cannot_keep(
    squid, calibrate, run, healthy, tmp_path
):
    for i in range(25, 30):
        (healthy / f"{i}.png").unlink()
    _, out, _ = calibrate(healthy, "--name", "here")
    missed = "highest of 25 held-out scores, too few to flag 10 % of healthy images with 95 %"
    assert f": {missed} confidence (it takes 29)" in out
    page = tmp_path / "list.html"
    words = ("--device", "cpu", "--calibration", "here", "--worklist", page, "--format", "json")
    _, out, _ = squid("score", run, healthy, *words)
    assert missed in page.read_text("utf-8")
    assert json.loads(out)["meaning"].startswith(missed)


def test_few_images_are_refused_unless_asked_for(calibrate, calibrate_refused, images):
    reason = calibrate_refused(images, "--name", "here")
    assert reason.startswith("3 healthy images are too few")
    code, out, _ = calibrate(images, "--name", "here", "--few")
    assert code == 0
    assert "3 held-out healthy images cannot support a threshold that flags 10 %" in out


def test_a_bad_file_costs_no_calibration(calibrate, healthy):
    (healthy / "bad.png").write_bytes(b"not an image")
    PIL.Image.new("L", (40, 40)).save(healthy / "black.png")
    code, out, err = calibrate(healthy, "--name", "here")
    assert code == 3
    assert "here, 30 healthy images" in out
    assert f"skipped {healthy / 'bad.png'}" in err
    assert f"{healthy / 'black.png'}: not applicable" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        *((("--rate", value), "A false-positive rate lies") for value in ("5", "0", "1", "nan")),
        *((("--confidence", value), "A confidence lies") for value in ("95", "0", "1", "nan")),
        (("--by", "ward"), "give a --table with a column 'ward'"),
        (("--table", "table.csv"), "with --by"),
        (("--by", "view", "--table", "none.csv"), "There is no table none.csv"),
        (("--by", "ward", "--table", "table.csv"), "has no column 'ward'"),
        (("--by", "view", "--table", "table.csv"), "puts '0.png' into two groups"),
    ],
)
def test_mistakes_are_found_before_the_detector_is_loaded(
    calibrate_refused, run, healthy, tmp_path, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("squid.detector.Detector.load", loads_nothing)
    (tmp_path / "table.csv").write_text("image,view\n0.png,AP\n0.png,PA\n")
    assert sentence in calibrate_refused(healthy, "--name", "here", *words)
    assert not (run / "calibrations").exists()


def loads_nothing(*_, **__):
    raise AssertionError("the detector was loaded")


# Groups


def test_false_positives_are_compared_by_group(calibrate, healthy, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{i}.png,{'AP' if i < 10 else 'PA'}" for i in range(30)]
    table.write_text("image,view\n" + "\n".join(rows))
    words = ("--dry-run", "--table", table, "--by", "view", "--on-average")
    _, out, _ = calibrate(healthy, "--name", "here", *words)
    found = groups_of(out)
    assert {name: count for name, (count, _) in found.items()} == {"AP": 10, "PA": 20}
    # The 27th of 29 other scores is the threshold of each.
    assert sum(flagged for _, flagged in found.values()) == 3
    assert "Each image is flagged by a threshold that all other images set" in out
    assert "compared with the images of the other groups" in out
    assert "for its own threshold from 9 on" in out


def test_a_row_that_is_missing_saves_nothing(calibrate, calibrate_refused, run, healthy, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("image,view\n0.png,AP\n")
    words = (healthy, "--name", "here", "--by", "view", "--table", table)
    assert "has no row for" in calibrate_refused(*words)
    assert not (run / "calibrations").exists()
    table.write_text("image,view\n" + "".join(f"{i}.png,AP\n" for i in range(30)))
    assert calibrate(*words)[0] == 0
    assert (run / "calibrations/here.json").is_file()


def test_an_export_with_equal_names_is_grouped_by_its_studies(calibrate, export, tmp_path):
    """Each study has an IM0: by path below the folder, by UID of the study, by UID of the image."""
    tables = {
        "path": [f"study{i}/IM0" for i in range(20)],
        "study": [f"1.2.{i}" for i in range(20)],
        "image": [f"1.2.{i}.1" for i in range(20)],
    }
    for kind, keys in tables.items():
        table = tmp_path / f"{kind}.csv"
        rows = [f"{key},{'A' if i < 5 else 'B'}" for i, key in enumerate(keys)]
        table.write_text("image,ward\n" + "\n".join(rows))
        words = ("--name", "here", "--dry-run", "--table", table, "--by", "ward")
        code, out, err = calibrate(export, *words)
        assert code == 0, err
        assert {name: count for name, (count, _) in groups_of(out).items()} == {"A": 5, "B": 15}


def test_a_bare_name_of_several_images_is_no_row_of_any(calibrate_refused, export, tmp_path):
    (tmp_path / "table.csv").write_text("image,ward\nIM0,A\n")
    words = ("--name", "here", "--by", "ward", "--table", tmp_path / "table.csv")
    assert "has no row for" in calibrate_refused(export, *words)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("manufacturer", {"Acme": 10, "Other": 10}),
        ("view", {"AP": 5, "PA": 15}),
        ("sex", {"F": 19, "?": 1}),
        ("age_band", {"0 to 17": 4, "40 to 59": 16}),
    ],
)
def test_headers_give_the_groups_of_dicom_files(calibrate, export, by, expected):
    code, out, err = calibrate(export, "--name", "here", "--dry-run", "--by", by)
    assert code == 0, err
    assert {name: count for name, (count, _) in groups_of(out).items()} == expected


def test_pictures_have_no_headers(calibrate_refused, run, healthy):
    reason = calibrate_refused(healthy, "--name", "here", "--by", "view")
    assert reason.startswith("None of the images is a DICOM file that says its view")
    assert not (run / "calibrations").exists()


# Files of earlier versions


@pytest.mark.filterwarnings("ignore::squid.run.manifest.UnverifiedWarning")
def test_a_calibration_without_heldout_scores_must_be_measured_again(
    calibrate, refused, run, healthy, images
):
    assert calibrate(healthy, "--name", "here")[0] == 0
    path = run / "calibrations/here.json"
    measured = path.read_text()
    path.write_text('{"mean": 0.0, "std": 1.0, "count": 30, "thresholds": {"0.1": 2.5}}')
    words = ("score", run, images, "--calibration", "here", "--unverified")
    assert str(path) in refused(*words)
    code, out, _ = calibrate(healthy, "--name", "here", "--overwrite")
    assert code == 0
    assert "here is not compared: " in out
    assert path.read_text() == measured


@pytest.fixture
def export(tmp_path):
    """20 studies as an archive exports them: one image each, all of one name without a suffix."""
    pydicom = pytest.importorskip("pydicom", reason="the extra dicom is not installed")
    folder = tmp_path / "export"
    for i in range(20):
        dataset = pydicom.Dataset()
        dataset.file_meta = pydicom.dataset.FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"  # DX for presentation
        dataset.SOPInstanceUID, dataset.StudyInstanceUID = f"1.2.{i}.1", f"1.2.{i}"
        dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        dataset.Modality = "DX"
        dataset.Manufacturer = "Acme" if i % 2 else "Other"
        dataset.ViewPosition = "AP" if i < 5 else "PA"
        dataset.PatientSex = "F" if i else ""
        dataset.PatientAge = "011M" if i < 4 else "045Y"
        dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = 60, 50, 1
        dataset.PhotometricInterpretation, dataset.PixelRepresentation = "MONOCHROME2", 0
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
        dataset.PixelData = noise(i).tobytes()
        dataset["PixelData"].VR = "OB"
        (folder / f"study{i}").mkdir(parents=True)
        dataset.save_as(folder / f"study{i}" / "IM0", enforce_file_format=True)
    return folder


def rows_of(out):
    """Cells of the last table that is printed."""
    lines = (line for line in out[out.rindex("┏") :].splitlines() if "│" in line)
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]


def groups_of(out):
    """Name -> images, flagged ones, from the last table."""
    return {row[0]: (int(row[1]), int(row[2].split()[0])) for row in rows_of(out)}


def noise(seed):
    return np.random.default_rng(seed).integers(0, 256, (60, 50), dtype=np.uint8)


def save(path, seed=0):
    PIL.Image.fromarray(noise(seed)).save(path)
