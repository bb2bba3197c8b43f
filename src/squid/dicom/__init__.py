"""Results as DICOM objects of the study that the image belongs to."""

from squid.dicom.algorithm import Algorithm
from squid.dicom.results import results

__all__ = ["Algorithm", "results"]
