"""The image that a result is about: what results need of its header, and nothing else of it."""

import contextlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from pydicom import dcmread
from pydicom.dataset import Dataset

from squid.data.dicom import check_header
from squid.data.image import MAX_BYTES
from squid.errors import DataError

PATIENT = ("PatientName", "PatientID", "IssuerOfPatientID", "PatientBirthDate", "PatientSex")
STUDY = (
    "StudyInstanceUID",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
    "ReferringPhysicianName",
)
COPIED = ("SpecificCharacterSet", *PATIENT, *STUDY)
"""What every result repeats from its source, so that an archive files it with the same patient and
study. Whatever else a header says of a patient stays there."""
REQUIRED = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID")

POSITION = ("Laterality", "PatientOrientation")
LOSSY = (
    "LossyImageCompression",
    "LossyImageCompressionRatio",
    "LossyImageCompressionMethod",
)
MODALITY_LUT = ("RescaleIntercept", "RescaleSlope", "RescaleType", "ModalityLUTSequence")
WINDOW = ("WindowCenter", "WindowWidth", "WindowCenterWidthExplanation", "VOILUTFunction")
GRAY = (
    *MODALITY_LUT,
    *WINDOW,
    "VOILUTSequence",
    "PhotometricInterpretation",
    "PresentationLUTShape",
    "PixelRepresentation",
)
GEOMETRY = ("Rows", "Columns", "PixelSpacing", "ImagerPixelSpacing")
NEEDED = (*COPIED, *REQUIRED, "InstanceNumber", *POSITION, *LOSSY, *GRAY, *GEOMETRY)


@dataclass(frozen=True)
class Source:
    """The header of a source image, reduced to the attributes of `NEEDED`."""

    header: Dataset

    def __post_init__(self) -> None:
        for keyword in REQUIRED:
            if not self.header.get(keyword):
                raise DataError(f"The image has no {keyword}, which a DICOM result must refer to.")

    @classmethod
    def of(cls, source: Path | Dataset) -> "Source":
        """From a file or from a dataset, which stays as it is."""
        if isinstance(source, Path):
            source = _read_header(source)
        header = Dataset()
        for keyword in NEEDED:
            # A value that cannot be read is as good as none, and pydicom raises what it meets.
            with contextlib.suppress(Exception):
                header[keyword] = source[keyword]
        return cls(header)

    @property
    def uid(self) -> str:
        return str(self.header.SOPInstanceUID)

    @property
    def study(self) -> str:
        return str(self.header.StudyInstanceUID)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.header.Rows), int(self.header.Columns)

    @property
    def spacing(self) -> tuple[float, float] | None:
        """Millimetres between rows and between columns; None where the file does not say."""
        for keyword in ("PixelSpacing", "ImagerPixelSpacing"):
            try:
                rows, columns = (float(value) for value in self.header[keyword].value)
            except (KeyError, TypeError, ValueError):
                continue
            if rows > 0 and columns > 0:
                return rows, columns
        return None

    @property
    def inverted(self) -> bool:
        """Whether low values are bright."""
        shown = {
            self.header.get("PhotometricInterpretation"),
            self.header.get("PresentationLUTShape"),
        }
        return bool(shown & {"MONOCHROME1", "INVERSE"})

    @property
    def has_voi_lut(self) -> bool:
        return bool(self.header.get("VOILUTSequence"))

    @property
    def has_window(self) -> bool:
        """Whether there is a centre and a width above zero; devices write windows without."""
        try:
            centres, widths = (
                np.atleast_1d(np.asarray(self.header[keyword].value, dtype=float))
                for keyword in ("WindowCenter", "WindowWidth")
            )
        except (KeyError, TypeError, ValueError):
            return False
        return len(centres) == len(widths) > 0 and bool((widths > 0).all())

    def copy(self, keywords: tuple[str, ...], into: Dataset) -> None:
        """Attributes as they are in the source, also where a value breaks the standard."""
        for keyword in keywords:
            if keyword in self.header:
                into[keyword] = self.header[keyword]

    def reference(self) -> Dataset:
        """An item of a sequence that refers to the image."""
        item = Dataset()
        item.ReferencedSOPClassUID = self.header.SOPClassUID
        item.ReferencedSOPInstanceUID = self.uid
        return item

    def series_reference(self) -> Dataset:
        """Its series."""
        item = Dataset()
        item.SeriesInstanceUID = self.header.SeriesInstanceUID
        return item


def _read_header(path: Path) -> Dataset:
    """A file's header, within the limits of our own reader: pydicom trusts what it reads."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES)
    try:
        check_header(data)
        return dcmread(BytesIO(data), stop_before_pixels=True, specific_tags=list(NEEDED))
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # whatever pydicom meets in a damaged file
        raise DataError(f"{path} has a damaged header ({error}); export it again.") from None
