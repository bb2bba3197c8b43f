"""Results belong to the source's study, repeat themselves, and tell no more of a patient than they
must."""

import io
import zlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pydicom
import pytest
from pydicom import Dataset, dcmread
from pydicom.datadict import dictionary_has_tag, dictionary_VR, tag_for_keyword
from pydicom.dataelem import RawDataElement
from pydicom.tag import Tag
from pydicom.uid import UID

from squid.dicom.codes import OWN
from squid.dicom.source import COPIED, PATIENT, REQUIRED, STUDY
from squid.errors import DataError

from .conftest import ALGORITHM, MADE, PREDICTION

KINDS = ("SR", "OT", "PR")


def written(instance: Dataset) -> bytes:
    buffer = io.BytesIO()
    instance.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def read_again(instance: Dataset) -> Dataset:
    return dcmread(io.BytesIO(written(instance)))


@pytest.fixture
def header(source_file) -> Dataset:
    """The header of a chest radiograph, to be changed."""
    return dcmread(source_file("RG3_UNCR.dcm"), stop_before_pixels=True)


# One study, own series


def test_results_join_the_study_in_series_of_their_own(make, header):
    made = make(header)
    assert tuple(made) == KINDS
    assert {one.StudyInstanceUID for one in made.values()} == {header.StudyInstanceUID}
    series = {one.SeriesInstanceUID for one in made.values()}
    assert len(series) == 3
    assert header.SeriesInstanceUID not in series
    assert {one.SeriesDescription for one in made.values()} == {"SQUID (research use only)"}
    assert {one.ContentQualification for one in made.values()} == {"RESEARCH"}


def test_nobody_has_verified_a_report_and_a_capture_has_text_in_its_pixels(make, header):
    made = make(header)
    assert (made["SR"].VerificationFlag, made["SR"].PreliminaryFlag) == (
        "UNVERIFIED",
        "PRELIMINARY",
    )
    assert made["OT"].BurnedInAnnotation == "YES"
    assert made["OT"].file_meta.TransferSyntaxUID.name == "RLE Lossless"


def test_all_refer_to_the_source(make, header):
    made = make(header)
    series = made["SR"].CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence[0]
    references = [
        series.ReferencedSOPSequence[0],
        made["OT"].SourceImageSequence[0],
        made["PR"].ReferencedSeriesSequence[0].ReferencedImageSequence[0],
    ]
    assert {one.ReferencedSOPInstanceUID for one in references} == {header.SOPInstanceUID}
    assert {one.ReferencedSOPClassUID for one in references} == {header.SOPClassUID}


# The same result again


def test_a_result_made_again_has_the_same_identifiers(make, header):
    first, again = make(header), make(header, at=MADE + timedelta(days=3))
    for kind in KINDS:
        assert again[kind].SOPInstanceUID == first[kind].SOPInstanceUID
        assert again[kind].SeriesInstanceUID == first[kind].SeriesInstanceUID


def test_identifiers_never_change():
    """Archives hold results under them: a new version must not make copies of the old ones."""
    from squid.dicom.instance import uid_of

    assert uid_of("1.2.3", "model", "report") == "2.25.165737651844180123651670257370968903406"


@pytest.mark.parametrize(
    "change",
    [
        {"model": "ef" * 32},
        {"calibration_digest": "ef" * 32},
        {"threshold": 2.8},
        {"name": "padim"},
        {"rate": 0.05},  # with few images several rates have one threshold
        {"meaning": "flags 10 % of healthy images with 95 % confidence"},
        {"calibration": "here: 100 healthy images of here"},
        {"version": "0.2.0"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_detector_or_operating_point_gives_other_results(make, header, change):
    first, other = make(header), make(header, algorithm=replace(ALGORITHM, **change))
    for kind in KINDS:
        assert other[kind].SOPInstanceUID != first[kind].SOPInstanceUID
        assert other[kind].SeriesInstanceUID != first[kind].SeriesInstanceUID


def test_images_of_a_study_share_a_series_for_each_kind(make, header):
    first = make(header)
    header.SOPInstanceUID = "1.2.3.4"
    second = make(header)
    for kind in KINDS:
        assert second[kind].SeriesInstanceUID == first[kind].SeriesInstanceUID
        assert second[kind].SOPInstanceUID != first[kind].SOPInstanceUID
    uids = [one.SOPInstanceUID for made in (first, second) for one in made.values()]
    assert len(set(uids)) == 6
    assert all(UID(uid).is_valid and uid.startswith("2.25.") for uid in uids)


# Patients


def test_only_allowed_attributes_of_a_patient_leave_the_source(make, header):
    """Each text attribute of the standard that says something of a patient, a person or a place is
    planted in the source; of all those only the allowed ones are found in the files."""
    planted = plant(header)
    assert len(planted) > 100
    for instance in make(header).values():
        data = written(instance)
        found = {keyword for keyword, text in planted.items() if text.encode() in data}
        assert found <= set(COPIED)
        assert found >= {"PatientID", "PatientName", "AccessionNumber"}


def plant(header: Dataset) -> dict[str, str]:
    """Sets every attribute of groups 8, 10, 18, 32 and 40 that holds free text, and a private one;
    the text of each by its keyword."""
    planted = {}
    for tag, entry in pydicom.datadict.DicomDictionary.items():
        keyword, group = entry[4], tag >> 16
        free = entry[0] in {"LO", "SH", "PN", "LT", "ST", "UT", "UC"} and entry[3] != "Retired"
        if keyword and free and group in {0x8, 0x10, 0x18, 0x20, 0x32, 0x38, 0x40}:
            planted[keyword] = f"S{tag:08X}"
            setattr(header, keyword, planted[keyword])
    header.private_block(0x0011, "ACME", create=True).add_new(1, "LO", "Sprivate")
    return planted | {"private": "Sprivate"}


def test_what_is_copied_equals_the_source(make, source_file):
    for name in ("RG1_UNCR.dcm", "vlut_04.dcm", "CT_small.dcm"):
        source = dcmread(source_file(name), stop_before_pixels=True)
        for instance in make(source_file(name)).values():
            again = read_again(instance)
            assert [again.get(k) or None for k in COPIED] == [source.get(k) or None for k in COPIED]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("ISO_IR 100", "Müller^Jörg"),
        ("ISO_IR 192", "Þór^Œuvre"),
        (["", "ISO 2022 IR 87"], "Yamada^Tarou=山田^太郎=やまだ^たろう"),
        ("ISO_IR 144", "Жук^Юлия"),
    ],
)
def test_names_survive_in_any_script(make, header, encoding, name):
    header.SpecificCharacterSet = encoding
    header.PatientName = name
    for instance in make(read_again_as_source(header)).values():
        again = read_again(instance)
        assert again.SpecificCharacterSet == header.SpecificCharacterSet
        assert str(again.PatientName) == name


def read_again_as_source(header: Dataset) -> Dataset:
    """As a file would give it: names are bytes until somebody wants them."""
    return read_again(header)


# Sources as they are


def test_attributes_that_a_source_lacks_are_empty(make, header):
    for keyword in (*PATIENT, *STUDY, "Laterality", "PatientOrientation", "InstanceNumber"):
        if keyword not in REQUIRED and keyword in header:
            delattr(header, keyword)
    for instance in make(header).values():
        again = read_again(instance)
        for keyword in (*PATIENT, *STUDY):
            if keyword not in (*REQUIRED, "IssuerOfPatientID"):
                assert again[keyword].is_empty
        assert again.InstanceNumber == 1


BROKEN = {
    "PatientSex": "Male",
    "PatientBirthDate": "about 1940",
    "PatientName": "A" * 100,
    "StudyTime": "noon",
    "AccessionNumber": "more than sixteen characters",
    "InstanceNumber": b"first ",
    "PixelSpacing": ["0", "0"],
    "WindowWidth": "",
    "WindowCenter": "",
    "Laterality": "left",
    "PatientOrientation": ["L"],
    "SpecificCharacterSet": "ISO 8859-1",
}


@pytest.mark.parametrize("keyword", BROKEN)
def test_values_that_break_the_standard_are_repeated_not_refused(make, header, keyword):
    with pydicom.config.disable_value_validation():
        if isinstance(value := BROKEN[keyword], bytes):
            tag = Tag(tag_for_keyword(keyword))
            header[tag] = RawDataElement(tag, "IS", len(value), value, 0, False, True)
        else:
            setattr(header, keyword, value)
        for instance in make(header).values():
            copied = instance.get(keyword)
            if keyword in COPIED:
                assert copied == header.get(keyword)
            assert len(written(instance)) > 1000


@pytest.mark.parametrize("keyword", REQUIRED)
def test_an_image_without_an_identifier_is_refused(make, header, keyword):
    delattr(header, keyword)
    with pytest.raises(DataError, match=f"no {keyword}"):
        make(header)


@pytest.mark.parametrize(
    "name", ["MR_small_bigendian.dcm", "MR_small_implicit.dcm", "image_dfl.dcm", "JPEG-LL.dcm"]
)
def test_sources_in_any_encoding(make, name):
    path = pydicom.data.get_testdata_file(name, download=False)
    source = dcmread(path, stop_before_pixels=True)
    for instance in make(source).values():
        assert str(read_again(instance).PatientName) == str(source.PatientName)


def test_a_file_that_is_not_dicom_is_refused(make, tmp_path):
    (tmp_path / "image.dcm").write_bytes(b"P5 2 2 255 abcd")
    with pytest.raises(DataError, match=r"image\.dcm is not a DICOM file"):
        make(tmp_path / "image.dcm")


def test_a_header_that_inflates_without_end_is_refused(make, tmp_path):
    path = pydicom.data.get_testdata_file("image_dfl.dcm", download=False)
    meta = 132 + 12 + dcmread(path, stop_before_pixels=True).file_meta[0x00020000].value
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    element = b"\x08\x00\x05\x00UN\x00\x00\x00\x00\x00\x08"  # of 128 MiB
    bomb = deflater.compress(element + bytes(2**27)) + deflater.flush()
    (tmp_path / "bomb.dcm").write_bytes(Path(path).read_bytes()[:meta] + bomb)
    assert len(bomb) < 2**20
    with pytest.raises(DataError, match="inflates to more than"):
        make(tmp_path / "bomb.dcm")


def test_sequences_nested_without_end_are_as_good_as_none(make, header, tmp_path):
    nested = b""
    for _ in range(3000):
        item = b"\xfe\xff\x00\xe0" + len(nested).to_bytes(4, "little") + nested
        # The sequence of a VOI LUT, which a presentation state wants.
        nested = b"\x28\x00\x10\x30SQ\x00\x00" + len(item).to_bytes(4, "little") + item
    (tmp_path / "nested.dcm").write_bytes(written(header) + nested)
    made = make(tmp_path / "nested.dcm")
    assert made["PR"].StudyInstanceUID == header.StudyInstanceUID


# What is said


def test_the_report_says_score_p_value_operating_point_and_answer(make, header):
    said = content_of(make(header)["SR"])
    assert float(said["SCORE"]) == PREDICTION.score
    assert float(said["PVALUE"]) == pytest.approx(5 / 101)
    assert float(said["THRESHOLD"]) == ALGORITHM.threshold
    assert float(said["RATE"]) == ALGORITHM.rate
    assert said["REACHES"] == ("373066001", "SCT", "Yes")
    below = make(header, replace(PREDICTION, score=1.0, flagged=False))["SR"]
    assert content_of(below)["REACHES"] == ("373067005", "SCT", "No")


def test_the_smallest_p_value_is_not_reported_as_an_estimate(make, header):
    rarest = replace(PREDICTION, p_value=1 / 26, rarity="fewer than 1 in 25")
    made = make(header, rarest)
    sentence = "fewer than 1 in 25 healthy images scores this high"
    said = [item.TextValue for item in walk(made["SR"]) if "TextValue" in item]
    assert f"P-value in words: {sentence}" in said
    text = made["PR"].GraphicAnnotationSequence[0].TextObjectSequence[0].UnformattedTextValue
    assert sentence in text


def content_of(report: Dataset) -> dict[str, object]:
    """Numbers and answers of the measurement group, by code."""
    (group,) = [item for item in walk(report) if item.get("ValueType") == "CONTAINER"][-1:]
    said = {}
    for item in group.ContentSequence:
        code = item.get("ConceptNameCodeSequence", [Dataset()])[0].get("CodeValue")
        if item.ValueType == "NUM":
            said[code] = item.MeasuredValueSequence[0].NumericValue
        elif item.ValueType == "CODE":
            answer = item.ConceptCodeSequence[0]
            said[code] = (answer.CodeValue, answer.CodingSchemeDesignator, answer.CodeMeaning)
    return said


def walk(dataset: Dataset):
    yield dataset
    for item in dataset.get("ContentSequence", []):
        yield from walk(item)


def test_without_a_calibration_only_the_score_is_reported(make, header):
    raw = replace(PREDICTION, p_value=None, flagged=None)
    bare = replace(ALGORITHM, threshold=None, rate=None)
    made = make(header, raw, bare)
    assert set(content_of(made["SR"])) == {"SCORE"}
    text = made["PR"].GraphicAnnotationSequence[0].TextObjectSequence[0].UnformattedTextValue
    assert "Not calibrated" in text


def test_a_method_without_heatmaps_has_results_without_a_region(make, header):
    made = make(header, heat=None)
    assert tuple(made) == KINDS
    assert "GraphicObjectSequence" not in made["PR"].GraphicAnnotationSequence[0]


def test_no_code_says_normal(make, header):
    """A low score is no statement about disease."""
    coded = [
        element.value
        for low in (True, False)
        for instance in make(header, replace(PREDICTION, flagged=not low)).values()
        for element in instance.iterall()
        if element.keyword == "CodeMeaning"
    ]
    assert len(coded) > 40
    assert not [meaning for meaning in coded if "normal" in meaning.lower()]


def test_an_image_for_which_no_score_means_anything_has_no_results(make, header):
    none = replace(PREDICTION, score=None, p_value=None, flagged=None, not_applicable="view LL")
    assert make(header, none) == {}


def test_the_reference_page_names_every_code_and_every_copied_attribute():
    page = Path(__file__).resolve().parents[2] / "docs/reference/dicom-results.md"
    text = page.read_text(encoding="utf-8")
    assert [code.value for code in OWN if f"| {code.meaning} | `{code.value}`" not in text] == []
    assert [keyword for keyword in COPIED if f"`{keyword}`" not in text] == []


def test_keywords_are_of_the_standard():
    for keyword in (*COPIED, *REQUIRED):
        tag = tag_for_keyword(keyword)
        assert tag is not None
        assert dictionary_has_tag(tag)
        assert dictionary_VR(tag)
