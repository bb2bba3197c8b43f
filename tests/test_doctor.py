"""`squid doctor`: what it finds on a machine that works, and on machines that do not."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from squid import doctor

SOURCE = Path(__file__).resolve().parents[1] / "src"


def run(*words, path=()):
    folders = os.pathsep.join(map(str, (*path, SOURCE)))
    return subprocess.run(
        [sys.executable, "-m", "squid", "doctor", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": folders, "COLUMNS": "200"},
    )


def named(checks, section):
    return {check.name: check for check in checks if check.section == section}


@pytest.fixture
def lacking(monkeypatch):
    """lacking("einops"): as if that distribution were not installed."""
    version = metadata.version

    def lacking(name, instead=None):
        def look_up(asked):
            if asked != name:
                return version(asked)
            if instead is None:
                raise metadata.PackageNotFoundError(name)
            return instead

        monkeypatch.setattr(doctor.metadata, "version", look_up)

    return lacking


def test_a_machine_that_works():
    checks = doctor.examine()
    assert doctor.usable(checks)
    assert {check.section for check in checks} >= {
        "versions", "extras", "DICOM", "devices", "backends", "data", "self-test",
    }  # fmt: skip
    assert named(checks, "versions")["torch"].works
    assert "trained, scored and explained" in next(iter(named(checks, "self-test").values())).found


def test_what_is_only_optional_breaks_nothing(lacking):
    lacking("onnxscript")
    found = named(doctor._extras(), "extras")["export"]
    assert (found.works, found.required) == (False, False)
    assert found.found == "lacks onnxscript (not installed)"
    assert found.remedy == "pip install 'squid-radiography[export]'"


def test_what_is_required_breaks_the_machine(lacking):
    lacking("einops")
    checks = list(doctor._versions())
    assert not doctor.usable(checks)
    assert named(checks, "versions")["einops"].remedy == "pip install --upgrade squid-radiography"


def test_a_version_that_is_too_old_is_named(lacking):
    lacking("torch", "2.0")
    found = named(doctor._versions(), "versions")["torch"]
    assert not found.works
    assert found.found.startswith("2.0, but >=2.")


def test_a_backend_that_does_not_load_is_no_backend(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = named(doctor._backends(), "backends")["onnx"]
    assert not found.works
    assert found.remedy == "pip install 'squid-radiography[export]'"


def test_every_transfer_syntax_has_a_decoder():
    pytest.importorskip("imagecodecs")
    found = list(doctor._decoders())
    assert len(found) == 16
    assert all(check.works for check in found)
    assert "1.2.840.10008.1.2.4.51" in named(found, "DICOM")["JPEG Extended"].found


@pytest.mark.parametrize("module", ["squid.data.dicom.codecs", "imagecodecs"])
def test_decoders_that_are_missing_are_named(monkeypatch, module):
    monkeypatch.delitem(sys.modules, "squid.data.dicom.codecs", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    found = named(doctor._decoders(), "DICOM")
    assert not found["JPEG Lossless"].works
    assert found["JPEG Lossless"].remedy == "pip install 'squid-radiography[dicom]'"
    assert found["uncompressed"].works


def test_a_data_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("SQUID_DATA", str(tmp_path / "none"))
    (found,) = doctor._data()
    assert (found.works, found.required) == (False, False)
    assert "SQUID_DATA" in found.remedy


def test_remedies_point_to_nothing_that_an_installation_lacks(monkeypatch, tmp_path):
    """A wheel has no docs folder."""
    monkeypatch.setenv("SQUID_DATA", str(tmp_path))
    absent = named(doctor._data(), "data")["zhanglab"]
    assert not absent.works
    assert str(tmp_path) in absent.remedy
    monkeypatch.setenv("SQUID_DATA", str(tmp_path / "none"))
    remedies = [check.remedy for check in (absent, *doctor._data())]
    assert all(remedies)
    assert not any("docs/" in remedy for remedy in remedies)


def test_a_self_test_whose_scores_change_fails(monkeypatch):
    from squid.detector import Detector

    score = Detector.score
    calls = iter(range(100))
    monkeypatch.setattr(Detector, "score", lambda self, images: score(self, images) + next(calls))
    (found,) = doctor._self_test()
    assert not found.works
    assert found.found == "the same images got other scores"


def test_json_and_the_exit_code_of_a_machine_that_works():
    done = run("--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["usable"] is True


def test_a_torch_that_cannot_be_loaded_is_a_line_and_exit_code_1(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so is missing')")
    done = run(path=[tmp_path])
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "OSError: libcudart.so is missing" in done.stdout
    assert "SQUID does not work here." in done.stdout
    assert "pillow" in done.stdout
