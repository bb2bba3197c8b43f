"""Which DICOM files are read, which are refused and why, and what is kept of their headers."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pydicom
import pytest
import torch

import squid.data.dicom
from squid.data.dicom import DicomFacts, check_header, read_dicom, read_facts
from squid.data.image import read_image, read_resized
from squid.data.reading import AS_DECLARED, DicomReading, Reading
from squid.data.walk import find_images
from squid.errors import DataError, MissingExtra

Make = Callable[..., bytes]
RAMP = np.arange(400, dtype=np.uint16).reshape(20, 20)
CT, MR, XA = (f"1.2.840.10008.5.1.4.1.1.{end}" for end in ("2", "4", "12.1"))
RAW_DX, SECONDARY = "1.2.840.10008.5.1.4.1.1.1.1.1", "1.2.840.10008.5.1.4.1.1.7"


def test_a_file_is_read_like_any_other_image(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "IM0001"  # hospitals give no suffix
    path.write_bytes(make(RAMP, BitsStored=12))
    full = Reading(dicom=DicomReading(voi="full"))
    image = read_image(path, reading=full)
    expected = torch.from_numpy((RAMP / 4095.0).astype(np.float32))
    torch.testing.assert_close(image.pixels[0], expected)
    assert image.steps == ("DICOM, uncompressed", "full range: 0 to 4095")
    resized = read_resized(path, 8, reading=full)
    gray = PIL.Image.fromarray((RAMP / 4095.0 * 255.0).round().astype(np.uint8))
    assert np.array_equal(resized.pixels, gray.resize((8, 8), PIL.Image.Resampling.BICUBIC))
    assert resized.steps == image.steps


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"sop_class": CT, "Modality": "CT"}, r"is no radiograph \(modality CT"),
        ({"sop_class": MR, "Modality": None}, "is no radiograph .modality unknown"),
        ({"NumberOfFrames": 2}, "has 2 frames"),
        ({"SamplesPerPixel": 4}, "has 4 samples a pixel of 16 bits"),
        ({"BitsAllocated": 64}, "has 1 samples a pixel of 64 bits"),
        ({"BitsStored": 17}, "stores 17 bits up to bit 16 of 16"),
        ({"BitsStored": 12, "HighBit": 3}, "stores 12 bits up to bit 3 of 16"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "has 'PALETTE COLOR' pixels"),
        ({"Rows": 60000, "Columns": 60000}, "has 60000 x 60000 pixels"),
        ({"Rows": 0}, "has no pixels"),
        ({"Rows": 21}, "ends within its pixels"),
        (
            {"syntax": "1.2.840.10008.1.2.4.100"},
            "has the transfer syntax '1.2.840.10008.1.2.4.100', which",
        ),
        ({"PresentationIntentType": "FOR PROCESSING"}, "is for processing"),
        ({"sop_class": RAW_DX}, "is for processing"),
    ],
)
def test_what_cannot_be_read_rightly_is_refused(
    make: Make, elements: dict[str, Any], reason: str
) -> None:
    data = make(RAMP, **{key: value for key, value in elements.items() if key != "syntax"})
    if "syntax" in elements:  # pydicom does not write what it cannot encode
        data = data.replace(
            b"UI\x14\x001.2.840.10008.1.2.1\0", b"UI\x18\x00" + b"1.2.840.10008.1.2.4.100\0"
        )
    with pytest.raises(DataError, match=f"^the upload {reason}"):
        read_image(data, "the upload")


def test_for_processing_is_read_when_asked_for(make: Make) -> None:
    data = make(RAMP, sop_class=RAW_DX, PresentationIntentType="FOR PROCESSING")
    steps = read_dicom(data, DicomReading(for_processing="window")).steps
    assert steps[1] == "for processing: the detector's gray values"
    assert steps[2].startswith("percentiles")


@pytest.mark.parametrize(("kind", "note"), [(SECONDARY, "secondary capture"), (XA, "angiogram")])
def test_other_kinds_of_images_are_noted(make: Make, kind: str, note: str) -> None:
    assert note in read_dicom(make(RAMP, sop_class=kind), DicomReading()).steps[1]


GRAY_IN_COLOUR = np.repeat(np.arange(0, 240, 12, dtype=np.uint8).reshape(4, 5, 1), 3, axis=2)


def test_gray_pixels_in_colour_are_read_and_colours_are_refused(make: Make) -> None:
    full = DicomReading(voi="full")
    gray = read_dicom(make(GRAY_IN_COLOUR, sop_class=SECONDARY), full)
    assert np.array_equal(gray.pixels.to_bytes(), GRAY_IN_COLOUR[..., 0])
    planes = np.ascontiguousarray(np.moveaxis(GRAY_IN_COLOUR, -1, 0)).reshape(4, 5, 3)
    apart = make(planes, sop_class=SECONDARY, PlanarConfiguration=1)
    assert np.array_equal(read_dicom(apart, full).pixels.to_bytes(), GRAY_IN_COLOUR[..., 0])
    colours = GRAY_IN_COLOUR.copy()
    colours[1, 1, 2] += 9
    with pytest.raises(DataError, match="is in colour"):
        read_dicom(make(colours, sop_class=SECONDARY), full)


FRONTAL_CHEST = DicomReading(views=("PA", "ap"), body_parts=("CHEST",))


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"ViewPosition": "AP", "BodyPartExamined": "chest "}, ""),
        ({"ViewPosition": "LL", "BodyPartExamined": "CHEST"}, "the view is LL, not PA or ap"),
        ({"BodyPartExamined": "CHEST"}, "the file names no view, not PA or ap"),
        ({"ViewPosition": "PA", "BodyPartExamined": "HAND"}, "the body part is HAND, not CHEST"),
        ({"ViewPosition": "PA"}, "the file names no body part, not CHEST"),
    ],
)
@pytest.mark.filterwarnings("ignore:Invalid value for VR CS")
def test_views_and_body_parts_that_are_not_taken_have_no_score(
    make: Make, tmp_path: Path, elements: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "image.dcm"
    path.write_bytes(make(RAMP, **elements))
    expected = f"not applicable: {reason}" if reason else ""
    found = read_resized(path, 8, reading=Reading(dicom=FRONTAL_CHEST))
    assert found.not_applicable == expected
    assert read_resized(path, 8, reading=AS_DECLARED).not_applicable == ""


def coded(scheme: str, code: str) -> dict[str, Any]:
    """A view that is named by a code alone, as many DX images name it."""
    item = pydicom.Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = code, scheme, "a view"
    return {"ViewPosition": "", "ViewCodeSequence": pydicom.Sequence([item])}


@pytest.mark.parametrize(
    ("scheme", "code", "view"),
    [
        ("SCT", "272479007", "PA"),
        ("SRT", "R-10214", "PA"),
        ("SRT", "R-40888", "PA"),
        ("SNM3", "R-10206", "AP"),
        ("SCT", "399348003", "AP"),
        ("SCT", "399173006", "LL"),
        ("SRT", "R-10232", "RL"),
        ("SCT", "399067008", "LATERAL"),
        ("SCT", "1", ""),
        ("99ACME", "272479007", ""),
    ],
)
def test_a_view_is_read_from_its_code_where_its_name_is_empty(
    make: Make, tmp_path: Path, scheme: str, code: str, view: str
) -> None:
    path = tmp_path / "image.dcm"
    path.write_bytes(make(RAMP, **coded(scheme, code)))
    assert read_facts(path).view == view
    taken = Reading(dicom=DicomReading(views=("PA", "AP")))
    found = read_resized(path, 8, reading=taken).not_applicable
    assert (found == "") == (view in ("PA", "AP"))


def test_a_view_that_is_named_counts_more_than_its_code(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "image.dcm"
    path.write_bytes(make(RAMP, **{**coded("SCT", "272479007"), "ViewPosition": "LL"}))
    assert read_facts(path).view == "LL"


def test_a_raw_image_says_what_can_be_done_about_it(make: Make) -> None:
    with pytest.raises(DataError, match=r"or train with data\.dicom\.for_processing = 'window'"):
        read_image(make(RAMP, sop_class=RAW_DX))


def beheaded(make: Make) -> dict[str, bytes]:
    """A file without its preamble, and its data set alone, written in two ways."""
    file = make(RAMP)
    group = 144 + int.from_bytes(file[140:144], "little")
    dataset, implicit = pydicom.dcmread(io.BytesIO(file)), io.BytesIO()
    del dataset.file_meta, dataset.preamble
    pydicom.dcmwrite(implicit, dataset, implicit_vr=True, little_endian=True)
    return {"no preamble": file[132:], "explicit": file[group:], "implicit": implicit.getvalue()}


@pytest.mark.parametrize("kind", ["no preamble", "explicit", "implicit"])
def test_a_data_set_without_its_header_is_distinguished_from_other_files(
    make: Make, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "IM0").write_bytes(beheaded(make)[kind])
    with pytest.raises(DataError, match=r"^IM0 is a DICOM data set without"):
        read_image((tmp_path / "IM0").read_bytes(), "IM0")
    with pytest.raises(DataError, match="is a DICOM data set without its header"):
        check_header((tmp_path / "IM0").read_bytes())
    ((_, reason),) = find_images(tmp_path).left_out
    assert reason == "a DICOM data set without its header; export it as a DICOM file"


@pytest.mark.parametrize(
    "data", [b"\x08\0\x05\0", b"\x08\0\x05\0\xff\xff\xff\xff", b"\0" * 200, b"DICM"]
)
def test_other_bytes_are_no_data_set(data: bytes) -> None:
    with pytest.raises(DataError, match="not a PNG, JPEG, TIFF, BMP or DICOM file"):
        read_image(data)


def test_a_window_that_leaves_one_gray_value_has_no_score(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "image.dcm"
    path.write_bytes(make(RAMP, WindowCenter=5000, WindowWidth=10))
    assert "one gray value" in read_resized(path, 8).not_applicable


HEADER = {
    "StudyInstanceUID": "1.2.840.1",
    "SeriesInstanceUID": "1.2.840.1.1",
    "PatientID": "12345678",
    "PatientName": "Doe^Jane",
    "PatientAge": "054Y",
    "PatientSex": "F",
    "ViewPosition": "PA",
    "BodyPartExamined": "CHEST",
    "Manufacturer": "ACME",
    "BurnedInAnnotation": "NO",
    "ImagerPixelSpacing": [0.15, 0.15],
}


def test_facts_hold_no_patient_but_a_key(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "IM1"
    path.write_bytes(make(RAMP, **HEADER))
    facts = read_facts(path)
    assert facts is not None
    assert re.fullmatch("[0-9a-f]{16}", facts.patient)
    assert "12345678" not in repr(facts)
    assert "Jane" not in repr(facts)
    assert facts == DicomFacts(
        sop_class="1.2.840.10008.5.1.4.1.1.1.1",
        **{"study_uid": "1.2.840.1", "series_uid": "1.2.840.1.1", "sop_uid": "1.2.3"},
        **{"patient": facts.patient, "modality": "DX", "view": "PA", "body_part": "CHEST"},
        **{"manufacturer": "ACME", "age": "054Y", "sex": "F", "burned_in": "NO"},
        bits=16,
        spacing=(0.15, 0.15),
    )
    path.write_bytes(make(RAMP, **{**HEADER, "PatientID": "12345679"}))
    assert read_facts(path).patient not in ("", facts.patient)
    path.write_bytes(make(RAMP))
    assert read_facts(path).patient == ""


def test_other_files_have_no_facts(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no image")
    assert read_facts(tmp_path / "text") is None
    assert read_facts(tmp_path / "absent") is None


def test_compressed_files_need_the_extra(
    gray_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = next(path for name, path in gray_files.items() if "MR_small_RLE" in name).read_bytes()
    data = data.replace(MR.encode(), SECONDARY.encode())
    monkeypatch.delitem(sys.modules, "squid.data.dicom.codecs", raising=False)
    monkeypatch.delattr(squid.data.dicom, "codecs", raising=False)
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    with pytest.raises(MissingExtra, match=r"pip install 'squid-radiography\[dicom\]'"):
        read_image(data)
