"""An archive takes the results, files them with the study, and holds one copy of each: Debian's
Orthanc with its DICOMweb plugin, started here on free ports of the loopback interface."""

import io
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from dicomweb_client import DICOMwebClient
from pydicom import Dataset, dcmread

from ..parts import need
from .conftest import MADE

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
TITLE = "ORTHANC"


class Orthanc:
    """A running server."""

    def __init__(self, http: int, dicom: int) -> None:
        self.http, self.dicom = f"http://127.0.0.1:{http}", dicom
        self.session = requests.Session()
        self.session.trust_env = False  # no proxy of the environment stands before loopback
        self.web = DICOMwebClient(f"{self.http}/dicom-web", session=self.session)

    def get(self, path: str) -> object:
        return self.session.get(f"{self.http}/{path}", timeout=10).json()

    def clear(self) -> None:
        for study in self.get("studies"):
            self.session.delete(f"{self.http}/studies/{study}", timeout=10)

    @property
    def copies(self) -> int:
        return self.get("statistics")["CountInstances"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orthanc]:
    need("Orthanc", package="orthanc orthanc-dicomweb", present=PLUGIN.exists())
    folder = tmp_path_factory.mktemp("orthanc")
    http, dicom = free_port(), free_port()
    settings = {
        "Name": "test",
        "StorageDirectory": str(folder / "storage"),
        "IndexDirectory": str(folder / "storage"),
        "Plugins": [str(PLUGIN)],
        "HttpPort": http,
        "DicomPort": dicom,
        "DicomAet": TITLE,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False,
        "DicomWeb": {"Enable": True, "Root": "/dicom-web/"},
    }
    (folder / "orthanc.json").write_text(json.dumps(settings))
    with (folder / "log").open("w") as log:
        command = ["Orthanc", str(folder / "orthanc.json")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Orthanc(http, dicom)
        wait_for(server, process, folder / "log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(server: Orthanc, process: subprocess.Popen, log: Path) -> None:
    for _ in range(200):
        assert process.poll() is None, log.read_text()
        try:
            server.get("system")
            return
        except requests.ConnectionError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def archive(server: Orthanc) -> Orthanc:
    """The server without any study."""
    server.clear()
    assert server.copies == 0
    return server


@pytest.fixture
def store(server: Orthanc, tool, tmp_path: Path) -> Callable[[Iterable[Path | Dataset]], None]:
    """store(files or instances): C-STORE by dcmtk, with the command of the how-to."""

    def send(results):
        paths = []
        for number, one in enumerate(results):
            if isinstance(one, Dataset):
                path = tmp_path / f"{number}.dcm"
                one.save_as(path, enforce_file_format=True)
            paths.append(path if isinstance(one, Dataset) else one)
        said = tool("storescu", "-v", "-xr", "-aec", TITLE, "127.0.0.1", server.dicom, *paths)
        assert said.count("Received Store Response (Success)") == len(paths)

    return send


@pytest.fixture
def source(source_file) -> Dataset:
    return dcmread(source_file("RG3_UNCR.dcm"))


def test_c_store_takes_all_results(archive, store, make, source):
    store([source, *make(source).values()])
    assert archive.copies == 4
    (study,) = archive.get("studies")
    modalities = {
        archive.get(f"series/{series}")["MainDicomTags"]["Modality"]
        for series in archive.get(f"studies/{study}")["Series"]
    }
    assert modalities == {source.Modality, "SR", "OT", "PR"}


def test_stow_takes_all_and_qido_finds_the_report_in_the_study(archive, make, source):
    made = make(source)
    archive.web.store_instances([source, *made.values()])
    (found,) = archive.web.search_for_series(
        study_instance_uid=source.StudyInstanceUID, search_filters={"Modality": "SR"}
    )
    series = Dataset.from_json(found)
    assert series.SeriesInstanceUID == made["SR"].SeriesInstanceUID
    assert series.StudyInstanceUID == source.StudyInstanceUID
    assert len(archive.web.search_for_studies()) == 1


def test_a_report_comes_back_as_it_was_sent(archive, store, make, source):
    made = make(source)["SR"]
    store([made])
    (instance,) = archive.get("instances")
    data = archive.session.get(f"{archive.http}/instances/{instance}/file", timeout=10).content
    back = dcmread(io.BytesIO(data))
    assert back.PatientName == source.PatientName
    assert back.to_json_dict() == through_a_file(made).to_json_dict()


def through_a_file(instance: Dataset) -> Dataset:
    """Some values have another type before they are written."""
    buffer = io.BytesIO()
    instance.save_as(buffer, enforce_file_format=True)
    return dcmread(io.BytesIO(buffer.getvalue()))


def test_the_archive_shows_a_capture(archive, make, source):
    made = make(source)["OT"]
    archive.web.store_instances([made])
    (instance,) = archive.get("instances")
    preview = archive.session.get(f"{archive.http}/instances/{instance}/preview", timeout=20)
    assert preview.headers["Content-Type"] == "image/png"
    assert len(preview.content) > 10_000


def test_results_sent_again_are_held_once(archive, store, make, source):
    store([source, *make(source).values()])
    store(make(source, at=MADE + timedelta(days=1)).values())
    archive.web.store_instances(list(make(source, at=MADE + timedelta(days=2)).values()))
    assert archive.copies == 4
    assert len(archive.get("series")) == 4


def test_from_a_training_to_the_archive(archive, store, squid, tiny_run, study, tmp_path):
    """A trained detector scores a study; the archive then holds it with its results, once, however
    often they are made and sent."""
    images = [dcmread(path) for path in sorted(study.iterdir())]
    store(images)
    for _ in range(2):
        assert squid("score", tiny_run, study, "--dicom-out", tmp_path / "results")[0] == 0
        store((tmp_path / "results").iterdir())
    assert archive.copies == 2 + 2 * 2
    for image in images:
        (found,) = archive.web.search_for_instances(
            study_instance_uid=image.StudyInstanceUID, search_filters={"Modality": "SR"}
        )
        series = archive.web.retrieve_instance_metadata(
            image.StudyInstanceUID,
            found["0020000E"]["Value"][0],
            found["00080018"]["Value"][0],
        )
        report = Dataset.from_json(series)
        assert report.PatientID == image.PatientID
        evidence = report.CurrentRequestedProcedureEvidenceSequence[0]
        (reference,) = evidence.ReferencedSeriesSequence[0].ReferencedSOPSequence
        assert reference.ReferencedSOPInstanceUID == image.SOPInstanceUID
