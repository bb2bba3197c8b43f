"""What the tests of DICOM results share: source images of several devices, and a detector's
result for them."""

import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from pydicom import Dataset, dcmread
from pydicom.data import get_testdata_file

from squid.detector import Prediction
from squid.dicom import Algorithm, results

from ..parts import need

MADE = datetime(2026, 3, 1, 9, 30)
ALGORITHM = Algorithm(
    name="squid",
    version="0.1.0",
    model="ab" * 32,
    calibration="run: 100 held-out healthy images",
    calibration_digest="cd" * 32,
    threshold=2.75,
    rate=0.1,
)
PREDICTION = Prediction(
    source="image.dcm",
    score=3.2134,
    p_value=5 / 101,
    standardised=0.9,
    flagged=True,
    steps=("window of the file", "inverted, since low values are bright"),
    rarity="1 in 20",
)

FILES = ("RG1_UNCR.dcm", "RG3_UNCR.dcm", "vlut_04.dcm", "mlut_18.dcm", "CT_small.dcm")
"""MONOCHROME1 with two names broken by the standard; 10 bits with spacing; a VOI LUT; a modality
LUT; and, of another modality, a file that pydicom brings along."""


@pytest.fixture(scope="session")
def source_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A source file by name, with every eighth pixel of the large ones."""
    folder = tmp_path_factory.mktemp("sources")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            found = get_testdata_file(name, download=False)
            if found is None:
                pytest.skip(f"{name} is not there: pip install pydicom-data")
            small = dcmread(found)
            factor = max(1, small.Rows // 256)
            pixels = np.ascontiguousarray(small.pixel_array[::factor, ::factor])
            small.Rows, small.Columns = pixels.shape
            small.PixelData = pixels.tobytes()
            small.save_as(path)
        return path

    return find


@pytest.fixture
def study(source_file: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder of two radiographs, as a PACS exports them: names without a suffix."""
    folder = tmp_path / "study"
    folder.mkdir()
    for number, name in enumerate(FILES[:2]):
        shutil.copy(source_file(name), folder / f"IM{number:04}")
    return folder


@pytest.fixture(scope="session")
def heatmap() -> np.ndarray:
    """(64, 64) with its peak at row 22, column 40."""
    rows, columns = np.mgrid[:64, :64]
    return np.exp(-((columns - 40) ** 2 + (rows - 22) ** 2) / 60).astype(np.float32)


@pytest.fixture(scope="session")
def make(heatmap: np.ndarray) -> Callable[..., dict[str, Dataset]]:
    """make(source): its results by modality (SR, OT, PR)."""

    def made(source, prediction=PREDICTION, algorithm=ALGORITHM, at=MADE, heat=heatmap):
        image = np.full((48, 32), 0.5, np.float32)
        objects = results(source, prediction, image, heat, algorithm=algorithm, gsps=True, made=at)
        return {one.Modality: one for one in objects}

    return made


@pytest.fixture(scope="session")
def tool() -> Callable[..., str]:
    """tool(name, *arguments): runs a program of the system; what it wrote, errors included."""

    def run(name: str, *arguments: object) -> str:
        need(name, package="dcmtk dicom3tools")
        command = [name, *map(str, arguments)]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout

    return run
