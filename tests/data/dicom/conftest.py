"""DICOM files for tests: made by pydicom, and those that pydicom brings for its own tests."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squid.data.dicom.elements import META, Elements, is_dicom, read_file
from squid.data.dicom.tags import Tag
from squid.errors import DataError

pydicom = pytest.importorskip("pydicom", reason="the extra dicom is not installed")

DX, SECONDARY = "1.2.840.10008.5.1.4.1.1.1.1", "1.2.840.10008.5.1.4.1.1.7"
EXPLICIT = "1.2.840.10008.1.2.1"

Make = Callable[..., bytes]


def make_dicom(
    pixels: np.ndarray, *, syntax: str = EXPLICIT, sop_class: str = DX, **elements: Any
) -> bytes:
    """An uncompressed file of (h, w) or (h, w, 3) integers; `elements` are set by keyword, and
    those that are None are left out."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = sop_class
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = "1.2.3"
    bits = pixels.dtype.itemsize * 8
    described = {
        "Modality": "DX",
        "Rows": pixels.shape[0],
        "Columns": pixels.shape[1],
        "SamplesPerPixel": 1 if pixels.ndim == 2 else 3,
        "PhotometricInterpretation": "MONOCHROME2" if pixels.ndim == 2 else "RGB",
        "PlanarConfiguration": None if pixels.ndim == 2 else 0,
        "PixelRepresentation": int(np.issubdtype(pixels.dtype, np.signedinteger)),
        "BitsAllocated": bits,
        "BitsStored": bits,
        **elements,
    }
    described.setdefault("HighBit", described["BitsStored"] - 1)
    for name, value in described.items():
        if value is not None:
            setattr(dataset, name, value)
    order = ">" if syntax == "1.2.840.10008.1.2.2" else "<"
    dataset.PixelData = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
    dataset["PixelData"].VR = "OB" if bits == 8 else "OW"
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def make() -> Make:
    return make_dicom


@pytest.fixture(scope="session")
def gray_files() -> dict[str, Path]:
    """All gray images with 8 bits or more among pydicom's own files and those of pydicom-data."""
    store = pytest.importorskip("data_store", reason="pydicom-data is not installed")
    found: dict[str, Path] = {}
    for package in (pydicom, store):
        for path in sorted((Path(package.__file__).parent / "data").rglob("*")):
            if not path.is_file():
                continue
            data = path.read_bytes()
            try:
                dataset = read_file(data).dataset if is_dicom(data) else Elements({}, META)
            except DataError:
                continue  # two files whose headers are broken on purpose
            is_gray = dataset.text(Tag.PhotometricInterpretation).startswith("MONOCHROME")
            if is_gray and dataset.word(Tag.BitsAllocated, 0) >= 8 and Tag.PixelData in dataset:
                found[path.relative_to(path.parents[1]).as_posix()] = path
    return found
