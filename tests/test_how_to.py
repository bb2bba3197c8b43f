"""How-to pages: their commands, run literally and in order, on data that are made here."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("highdicom", reason="the extra dicom is not installed")

from pydicom import dcmread
from pydicom.uid import generate_uid

from .data.dicom.conftest import make_dicom
from .parts import need

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/how-to/from-pacs-to-worklist.md"
REPORT, RAW = "1.2.840.10008.5.1.4.1.1.88.33", "1.2.840.10008.5.1.4.1.1.1.1.1"
METHOD = """
[method]
name = "fusion"
size = 64
parts = [
  { name = "ae_u", epochs = 2, batch_size = 8 },
  { name = "synthetic_lesions", channels = [4, 8], epochs = 1, batch_size = 8 },
]
"""
"""In place of the page's method, whose training takes longer than a test may."""


def radiograph(seed: int) -> np.ndarray:
    """(96, 80) of 12 bits: two dark lungs in a bright body, with noise; no two are equal."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:96, :80]
    body = 2600.0 + 400 * np.sin(rows / 17 + rng.normal() / 4)
    for centre in (24, 56):
        across, along = rng.normal(centre, 1.5), rng.normal(46, 2)
        body -= 1500 * np.exp(-(((columns - across) / 11) ** 2) - ((rows - along) / 26) ** 2)
    return np.clip(body + rng.normal(0, 40, body.shape), 0, 4095).astype(np.uint16)


def write(folder: Path, study: int, series: int, seed: int, **elements: object) -> None:
    """One file as an archive exports it: a folder for study and series, IM0 in every one."""
    path = folder / f"ST{study}/SE{series}/IM0"
    path.parent.mkdir(parents=True)
    described = {
        **{"PatientID": f"{folder.name}-{study}", "PatientName": f"Doe^{study}"},
        **{"PatientBirthDate": "19700101", "PatientSex": "F", "PatientAge": "050Y"},
        **{"StudyInstanceUID": generate_uid(entropy_srcs=[folder.name, str(study)])},
        **{"SeriesInstanceUID": generate_uid(entropy_srcs=[folder.name, f"{study}.{series}"])},
        **{"SOPInstanceUID": generate_uid(entropy_srcs=[folder.name, f"{study}.{series}.0"])},
        **{"StudyDate": "20260301", "StudyTime": "0900", "StudyID": "1", "AccessionNumber": "1"},
        **{"ReferringPhysicianName": "", "SeriesNumber": 1, "InstanceNumber": 1},
        **{"BitsStored": 12, "WindowCenter": 2048, "WindowWidth": 4096, "Manufacturer": "ACME"},
        **{"ViewPosition": "PA", "BodyPartExamined": "CHEST"},
    }
    path.write_bytes(make_dicom(radiograph(seed), **{**described, **elements}))


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Three folders of studies, some with a lateral view, a report and a raw image besides."""
    for number, (name, studies) in enumerate(
        {"healthy": 60, "healthy-recent": 25, "new": 6}.items()
    ):
        for study in range(studies):
            write(tmp_path / name, study, 0, 1000 * number + study)
        write(tmp_path / name, 0, 1, 1000 * number + 900, ViewPosition="LL")
        write(tmp_path / name, 1, 1, 1000 * number + 901, sop_class=REPORT, Modality="SR")
        write(tmp_path / name, 2, 1, 1000 * number + 902, sop_class=RAW)
    return tmp_path


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A port on which dcmtk's storescp takes what is sent, and where it puts it."""
    need("storescp", "storescu", package="dcmtk")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    received = tmp_path / "archive"
    received.mkdir()
    process = subprocess.Popen(["storescp", "+xa", "-od", str(received), str(port)])
    yield port, received
    process.terminate()
    process.wait(timeout=20)


@dataclass
class Shell:
    """Runs the commands of a page in a folder."""

    folder: Path
    said: dict[str, str] = field(default_factory=dict)
    """What each command printed."""

    def __post_init__(self) -> None:
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "squid").write_text(f'#!/bin/sh\nexec {sys.executable} -m squid "$@"\n')
        (programs / "squid").chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        source = f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "160"}

    def run(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        self.said[command] = done.stdout

    def run_until(self, command: str, condition: Callable[[], bool]) -> None:
        """Runs a command without an end, and stops it as Ctrl-C does."""
        process = subprocess.Popen(command.split(), cwd=self.folder, env=self.environment)
        end = time.monotonic() + 120
        while not condition() and process.poll() is None:
            assert time.monotonic() < end, command
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a language in a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return [block for kind, block in found if kind == language]


def commands(page: Path) -> list[str]:
    """The commands of a page but for those that install, in order."""
    lines = [line for block in blocks(page) for line in block.splitlines()]
    return [line for line in lines if not line.startswith("pip ")]


@pytest.mark.slow
def test_from_a_pacs_export_to_a_worklist(export: Path, archive: tuple[int, Path]) -> None:
    port, received = archive
    (recipe,) = blocks(PAGE, "toml")
    shortened, count = re.subn(r"\n\[method\]\n.*?\n(?=\n\[)", METHOD, recipe, flags=re.S)
    assert count == 1
    (export / "chest.toml").write_text(shortened)
    shell, done = Shell(export), export / "incoming/done"
    for command in commands(PAGE):
        if command.startswith("squid watch"):
            shutil.copytree(export / "new", export / "incoming", dirs_exist_ok=True)
            shell.run_until(command, lambda: sum(p.is_file() for p in done.rglob("*")) == 9)
        else:
            # The archive of this test in place of the page's.
            shell.run(command.replace("archive.example 104", f"127.0.0.1 {port}"))
    check_export(export)
    # Of six images each a report and a capture, in the archive as in the folder.
    sent = {dcmread(path).SOPInstanceUID for path in received.iterdir()}
    assert sent == {dcmread(path).SOPInstanceUID for path in (export / "results").iterdir()}
    assert len(sent) == 12
    said = next(text for command, text in shell.said.items() if command.startswith("squid score"))
    assert "9 found = 6 scored + 0 skipped + 2 left out + 1 not applicable" in said


def check_export(export: Path) -> None:
    """What the commands left: a looked-at folder, a run, a worklist, and answers."""
    checked = json.loads((export / "healthy-check/check.json").read_text())
    assert checked["headers"]["views"] == {"PA": 60, "LL": 1}
    assert json.loads((export / "runs/chest/calibrations/our-site.json").read_text())
    page = (export / "worklist.html").read_text("utf-8")
    # Names are IM0 in every series, so a worklist tells them apart by their folders.
    assert all(f"ST{study}/SE0/IM0" in page for study in range(6))
    answers = [json.loads(path.read_text()) for path in (export / "answers").rglob("*.json")]
    statuses = sorted(one["status"] for one in answers)
    assert statuses == ["left out"] * 2 + ["not applicable"] + ["scored"] * 6
    assert {one.get("calibration", "our-site") for one in answers} == {"our-site"}
    modalities = [dcmread(path).Modality for path in (export / "answers/dicom").iterdir()]
    assert sorted(modalities) == ["OT"] * 6 + ["SR"] * 6


def test_the_page_names_every_step() -> None:
    verbs = [" ".join(line.split()[:2]) for line in commands(PAGE)]
    assert verbs[:5] == [
        "squid doctor",
        "squid data",
        "squid train",
        "squid calibrate",
        "squid score",
    ]
    assert {"storescu -xr", "squid watch"} <= set(verbs)
