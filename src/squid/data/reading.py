"""How the files of a dataset are read: a part of the recipe, so that training and scoring agree."""

from typing import Literal

from pydantic import Field

from squid.config import Config, Damaged
from squid.data.levels import WORD


class DicomReading(Config):
    """How DICOM files become gray images, and which of them are taken."""

    voi: Literal["file", "percentile", "full"] = "file"
    """Which values become black and white: those of the file's VOI LUT or window (percentiles where
    it has none), the percentiles 0.5 and 99.5 of the image, or all that can be stored."""
    for_processing: Literal["refuse", "window"] = "refuse"
    """What to do with images for processing, whose gray values are the detector's: refuse them, or
    apply `voi` to them. One whose study holds the image for presentation, of the same view where
    both name it, is left out in either case."""
    views: tuple[str, ...] = ()
    """The views that are taken, such as PA and AP; others, and files that name none, as all that
    are not DICOM, have no score and are not trained on. All are taken when left out."""
    body_parts: tuple[str, ...] = ()
    """The body parts that are taken, such as CHEST; others, and files that name none, as all that
    are not DICOM, have no score and are not trained on. All are taken when left out."""


class Reading(Config):
    """How files become gray images."""

    bits: int | None = Field(None, ge=1, le=WORD)
    """Significant bits of 16-bit images; what each file declares when left out."""
    damaged: Damaged = "refuse"
    """What to do with a file whose checksum, texts or codes are broken."""
    dicom: DicomReading = DicomReading()
    """How DICOM files are read."""


AS_DECLARED = Reading()
"""Each file as it declares itself; damaged ones are refused."""
