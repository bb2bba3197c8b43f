"""`squid data check` of an archive's export: studies in folders, with what lies beside images."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from squid.data.checking import check_folder
from squid.data.contact_sheet import write_contact_sheet
from squid.data.folder import Folder
from squid.data.reading import Reading

Make = Callable[..., bytes]
REPORT = "1.2.840.10008.5.1.4.1.1.88.33"


@pytest.fixture
def export(make: Make, tmp_path: Path) -> Path:
    """Five studies of three patients: a frontal image each, one lateral, one raw, one report, one
    file that is cut short, and the text that the archive puts beside them."""

    def write(study: int, series: int, **elements: str) -> Path:
        path = tmp_path / f"export/ST{study}/SE{series}/IM0"
        path.parent.mkdir(parents=True)
        pixels = np.random.default_rng([study, series]).integers(0, 255, (20, 30), np.uint8)
        described = {"PatientID": f"P{study % 3}", "StudyInstanceUID": f"1.2.{study}"}
        path.write_bytes(make(pixels, **described, **elements))
        return path

    for study in range(5):
        write(study, 0, ViewPosition="PA", Manufacturer="ACME", BurnedInAnnotation="YES")
    write(0, 1, ViewPosition="LL", Manufacturer="OTHER")
    write(1, 1, PresentationIntentType="FOR PROCESSING")
    write(2, 1, sop_class=REPORT, Modality="SR")
    broken = write(3, 1, ViewPosition="PA")
    broken.write_bytes(broken.read_bytes()[:-100])
    (tmp_path / "export/README.TXT").write_text("exported")
    return tmp_path / "export"


def test_studies_are_no_class_folders_and_reports_no_broken_images(export: Path) -> None:
    found = check_folder(Folder(root=export))
    (row,) = found.groups()
    assert row == ("all", "", "normal", 7, 1, 3)
    assert found.shared_patients() == []
    assert sorted(reason.split()[0] for reason in found.left_out) == ["for", "no"]
    assert [file.name for file in found.unreadable] == ["ST3/SE1/IM0"]
    assert "all 7 images are taken as healthy" in found.warnings[0]


def test_what_headers_say_is_counted(export: Path) -> None:
    assert check_folder(Folder(root=export)).headers() == {
        "modalities": {"DX": 7},
        "views": {"PA": 6, "LL": 1},
        "body parts": {"?": 7},
        "machines": {"ACME": 5, "?": 1, "OTHER": 1},
        "stored bits": {"8": 7},
        "text burned into the pixels": {"YES": 5},
    }


def test_values_of_dicom_files_are_those_shown_and_their_bits_those_stored(
    make: Make, tmp_path: Path, squid: Callable[..., tuple]
) -> None:
    for bits in (10, 12, 12):
        pixels = np.random.default_rng(bits).integers(0, 2**bits, (20, 30)).astype(np.uint16)
        data = make(pixels, BitsStored=bits, WindowCenter=2**bits / 2, WindowWidth=2**bits)
        (tmp_path / f"IM{len(list(tmp_path.iterdir()))}").write_bytes(data)
    found = check_folder(Folder(root=tmp_path))
    assert list(found.values()) == [None]
    assert found.headers()["stored bits"] == {"12": 2, "10": 1}
    _, printed, _ = squid("data", "check", tmp_path)
    assert "stored bits: 12 (2), 10 (1)" in printed
    assert "values: DICOM, as shown, 0 to 255 (3 images)" in printed
    assert "8 bit" not in printed
    _, printed, _ = squid("data", "check", tmp_path, "--format", "json")
    assert [row["bits"] for row in json.loads(printed)["values"]] == [None]


def test_the_gate_of_a_recipe_is_shown(export: Path) -> None:
    found = check_folder(Folder.model_validate({"root": export, "dicom": {"views": ["PA"]}}))
    assert [file.not_applicable for file in found.not_applicable] == [
        "not applicable: the view is LL, not PA"
    ]


def test_the_command_counts_what_is_left_out(export: Path, squid: Callable[..., tuple]) -> None:
    code, printed, _ = squid("data", "check", export)
    assert code == 0
    assert "7 images" in printed
    assert "views: PA (6), LL (1)" in printed
    assert "left out: 1 files: no radiograph (modality SR" in printed


def test_pictures_of_all_folders_are_named_by_their_path(export: Path, tmp_path: Path) -> None:
    found = check_folder(Folder(root=export))
    assert write_contact_sheet(found, tmp_path / "sheet.png", Reading()) == 6
