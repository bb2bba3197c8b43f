"""What all result objects begin with: the source's patient and study, a series of their own, and
identifiers that are the same whenever a result is made again."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    UID,
    ComprehensiveSRStorage,
    ExplicitVRLittleEndian,
    GrayscaleSoftcopyPresentationStateStorage,
    SecondaryCaptureImageStorage,
)

from squid.data.dicom import MANUFACTURER
from squid.dicom.algorithm import Algorithm
from squid.dicom.source import COPIED, Source

DESCRIPTION = "SQUID (research use only)"
NAMESPACE = UUID("6f0c2f3e-5b0a-4c35-9d3b-2f4f5a1f7c11")
"""The root of all identifiers made here. It must never change: archives know results by them."""
IMPLEMENTATION = UID("2.25.148090403263243164021337386126105148433")
"""The software that writes the files."""
LARGEST = 2**31 - 1
"""The largest instance number."""


@dataclass(frozen=True)
class Kind:
    """One kind of result object."""

    name: str
    sop_class: UID
    modality: str
    series_number: int
    """High, so that viewers list results after the images."""


REPORT = Kind("report", ComprehensiveSRStorage, "SR", 9001)
CAPTURE = Kind("capture", SecondaryCaptureImageStorage, "OT", 9002)
PRESENTATION = Kind("presentation", GrayscaleSoftcopyPresentationStateStorage, "PR", 9003)


def uid_of(*parts: str) -> UID:
    """An identifier that depends on the parts alone (DICOM PS3.5, B.2)."""
    return UID(f"2.25.{uuid5(NAMESPACE, chr(0).join(parts)).int}")


def new_instance(source: Source, kind: Kind, algorithm: Algorithm, made: datetime) -> Dataset:
    """A dataset with the modules that all kinds share, ready to be saved once its own are added."""
    instance = Dataset()
    _add_patient_and_study(instance, source)
    _add_series(instance, source, kind, algorithm)
    instance.Manufacturer = MANUFACTURER
    instance.ManufacturerModelName = algorithm.name
    instance.SoftwareVersions = algorithm.version
    instance.DeviceSerialNumber = algorithm.model
    instance.SOPClassUID = kind.sop_class
    instance.SOPInstanceUID = uid_of(source.uid, algorithm.identity, kind.name)
    instance.ContentQualification = "RESEARCH"
    instance.InstanceNumber = _instance_number(source)
    instance.InstanceCreationDate = made.strftime("%Y%m%d")
    instance.InstanceCreationTime = made.strftime("%H%M%S")
    instance.file_meta = _file_meta(instance)
    return instance


def _add_patient_and_study(instance: Dataset, source: Source) -> None:
    # These must be there, empty where the source has none.
    for keyword in COPIED:
        if keyword not in ("SpecificCharacterSet", "IssuerOfPatientID"):
            setattr(instance, keyword, None)
    source.copy(COPIED, instance)


def _add_series(instance: Dataset, source: Source, kind: Kind, algorithm: Algorithm) -> None:
    # One series for all results of a kind that one detector gave in one study.
    instance.SeriesInstanceUID = uid_of(source.study, algorithm.identity, kind.name, "series")
    instance.SeriesNumber = kind.series_number
    instance.SeriesDescription = DESCRIPTION
    instance.Modality = kind.modality


def _instance_number(source: Source) -> int:
    """The source's own, so that results of a study sort like its images."""
    try:
        number = int(source.header.get("InstanceNumber") or 1)
    except (TypeError, ValueError):
        return 1
    return min(max(number, 1), LARGEST)


def _file_meta(instance: Dataset) -> FileMetaDataset:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = instance.SOPClassUID
    meta.MediaStorageSOPInstanceUID = instance.SOPInstanceUID
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.ImplementationClassUID = IMPLEMENTATION
    meta.ImplementationVersionName = "SQUID"
    return meta
