"""Results against programs that are not ours: dciodvfy (dicom3tools) and dcmtk."""

import numpy as np
import PIL.Image
import pytest
from pydicom import dcmread

from .conftest import FILES


@pytest.fixture
def saved(make, source_file, tmp_path):
    """saved(name): the source file, and its results as files by modality."""

    def save(name):
        files = {}
        for kind, instance in make(source_file(name)).items():
            files[kind] = tmp_path / f"{kind}.dcm"
            instance.save_as(files[kind], enforce_file_format=True)
        return source_file(name), files

    return save


# The standard


@pytest.mark.parametrize("name", FILES)
def test_results_have_no_error_that_the_source_has_not(saved, tool, name):
    source, files = saved(name)
    known = errors_in(tool("dciodvfy", "-new", source))
    for kind, path in files.items():
        said = tool("dciodvfy", "-new", path)
        assert IOD[kind] in said.split()  # it knows what it has checked
        assert errors_in(said) - known == set()


IOD = {"SR": "ComprehensiveSR", "OT": "SCImage", "PR": "GrayscaleSoftcopyPresentationState"}


def errors_in(said: str) -> set[str]:
    return {line for line in said.splitlines() if line.startswith("Error")}


def test_the_check_finds_an_error(saved, tool):
    _, files = saved("RG3_UNCR.dcm")
    broken = dcmread(files["SR"])
    del broken.VerificationFlag
    broken.save_as(files["SR"])
    assert "VerificationFlag" in "".join(errors_in(tool("dciodvfy", "-new", files["SR"])))


# The report as another program shows it


def test_a_report_shows_score_p_value_answer_and_version(saved, tool):
    _, files = saved("RG1_UNCR.dcm")
    shown = tool("dsrdump", "+Pl", files["SR"])
    for line in (
        'NUM:(,,"Anomaly score")="3.2134"',
        'NUM:(,,"Share of healthy images that score as high")="0.0495',
        'NUM:(,,"Score of the operating point")="2.75"',
        'CODE:(,,"Score reaches the operating point")=(373066001,SCT,"Yes")',
        'TEXT:(,,"Algorithm Name")="squid"',
        'TEXT:(,,"Algorithm Version")="0.1.0"',
        f'"SHA-256 of the model: {"ab" * 32}"',
        '"Step of reading: inverted, since low values are bright"',
        'IMAGE:(,,"Source of Measurement")=(CR image,)',
        "Verification Flag   : UNVERIFIED",
    ):
        assert line in shown


# Pixels as another program shows them


@pytest.mark.parametrize(
    ("name", "shown_by"),
    [("RG1_UNCR.dcm", "+Wi"), ("RG3_UNCR.dcm", "+Wi"), ("vlut_04.dcm", "+Wl")],
)
def test_a_presentation_state_keeps_the_gray_values(saved, tool, tmp_path, name, shown_by):
    """An image under its presentation state looks as it does by its own window or VOI LUT; the
    first is MONOCHROME1."""
    source, files = saved(name)
    alone, under = tmp_path / "alone.pgm", tmp_path / "under.pgm"
    tool("dcm2pnm", "+op", shown_by, 1, source, alone)
    tool("dcmp2pgm", source, "-p", files["PR"], under)
    first, second = (np.asarray(PIL.Image.open(path)) for path in (alone, under))
    assert len(np.unique(first)) > 10
    assert np.array_equal(first, second)


def test_a_modality_lut_is_kept(saved):
    source, files = saved("mlut_18.dcm")
    kept = dcmread(files["PR"]).ModalityLUTSequence[0].LUTData
    assert kept == dcmread(source).ModalityLUTSequence[0].LUTData


def test_a_capture_is_decoded_alike_elsewhere(saved, tool, tmp_path):
    _, files = saved("RG3_UNCR.dcm")
    tool("dcm2pnm", "+op", files["OT"], tmp_path / "out.ppm")
    elsewhere = np.asarray(PIL.Image.open(tmp_path / "out.ppm"))
    assert np.array_equal(elsewhere, dcmread(files["OT"]).pixel_array)
    assert max(elsewhere.shape) <= 1024
