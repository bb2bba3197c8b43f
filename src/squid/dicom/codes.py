"""Coded concepts of the structured report: published codes where there are some, else 99SQUID."""

from highdicom.sr.coding import CodedConcept
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

SCHEME = "99SQUID"
"""The private coding scheme; DICOM reserves designators that begin with 99 for such."""


def _own(value: str, meaning: str) -> CodedConcept:
    return CodedConcept(value, SCHEME, meaning)


SCORE = _own("SCORE", "Anomaly score")
P_VALUE = _own("PVALUE", "Share of healthy images that score as high")
THRESHOLD = _own("THRESHOLD", "Score of the operating point")
RATE = _own("RATE", "Target false-positive rate of the operating point")
REACHES = _own("REACHES", "Score reaches the operating point")
"""The only coded answer. It is about a score: nothing here says that an image is normal, since a
method that saw healthy images only cannot know."""

OWN = (SCORE, P_VALUE, THRESHOLD, RATE, REACHES)

YES = CodedConcept.from_code(codes.SCT.Yes)
NO = CodedConcept.from_code(codes.SCT.No)
IMAGING_PROCEDURE = CodedConcept.from_code(codes.SCT.ImagingProcedure)
DEVICE = CodedConcept.from_code(codes.DCM.Device)
SOURCE_IMAGE = CodedConcept("121322", "DCM", "Source image for image processing operation")
RATIO = CodedConcept("1", "UCUM", "no units")


def answer(reaches: bool) -> CodedConcept:
    """Yes or no, as SNOMED CT codes them."""
    return YES if reaches else NO


def scheme() -> Dataset:
    """An item of the Coding Scheme Identification Sequence that names 99SQUID."""
    item = Dataset()
    item.CodingSchemeDesignator = SCHEME
    item.CodingSchemeName = "SQUID anomaly detection"
    item.CodingSchemeResponsibleOrganization = "SQUID"
    return item
