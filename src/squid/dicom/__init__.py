"""Results as DICOM objects of the study that the image belongs to."""

from squid.errors import MissingExtra

try:
    from squid.dicom.algorithm import Algorithm
    from squid.dicom.results import results
except ModuleNotFoundError as error:
    if error.name not in ("pydicom", "highdicom", "contourpy"):
        raise
    raise MissingExtra(error.name, "dicom") from None

__all__ = ["Algorithm", "results"]
