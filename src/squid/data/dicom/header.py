"""What a DICOM file says about its image, and which images are refused before they are decoded."""

import hmac
import math
import re
import secrets
from dataclasses import dataclass

from squid.data.container import check_size
from squid.data.dicom.elements import Elements, File
from squid.data.dicom.tags import Tag
from squid.data.reading import DicomReading
from squid.errors import DataError

RADIOGRAPHS = {
    "1.2.840.10008.5.1.4.1.1.1": "",
    "1.2.840.10008.5.1.4.1.1.1.1": "",
    "1.2.840.10008.5.1.4.1.1.1.1.1": "",
    "1.2.840.10008.5.1.4.1.1.1.2": "",
    "1.2.840.10008.5.1.4.1.1.1.2.1": "",
    "1.2.840.10008.5.1.4.1.1.7": "secondary capture: not what the detector measured",
    "1.2.840.10008.5.1.4.1.1.12.1": "X-ray angiogram, not a radiograph",
    "1.2.840.10008.5.1.4.1.1.12.2": "fluoroscopy, not a radiograph",
}
"""SOP classes that are read, CR, DX and MG first, each with the step that names it."""
FOR_PROCESSING = {"1.2.840.10008.5.1.4.1.1.1.1.1", "1.2.840.10008.5.1.4.1.1.1.2.1"}
"""DX and MG as the detector measured them."""
MANUFACTURER = "SQUID"
"""Named by the results that this program makes (`squid.dicom`)."""
SNOMED = ("SCT", "SRT", "SNM3", "99SDM")
"""The names that files give to this coding scheme."""
VIEW_CODES = {
    **dict.fromkeys(("272479007", "R-10214", "R-40888"), "PA"),
    **dict.fromkeys(("399348003", "R-10206"), "AP"),
    **dict.fromkeys(("399173006", "R-10236"), "LL"),
    **dict.fromkeys(("399198007", "R-10232"), "RL"),
    **dict.fromkeys(("399067008", "R-102CD"), "LATERAL"),
    **dict.fromkeys(("399368009", "R-10226"), "MLO"),
    **dict.fromkeys(("399162004", "R-10242"), "CC"),
}
"""Views by their codes of today and of before (PS3.16 CID 4010), as ViewPosition names them."""
GRAY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
"""Photometric interpretations that can hold gray."""
MAX_COLOUR_PIXELS = 20_000_000
"""Limit for a secondary capture in colours, which has three values a pixel."""
SQUARE = 0.01
"""Share by which the spacings of square pixels differ at most."""
SALT = secrets.token_bytes(16)
"""Makes the keys of patients useless outside this process."""


class OtherObject(DataError):
    """A DICOM object that is no image to be scored: a report, a raw image, a result of SQUID. A
    study holds such objects beside its images, and nothing is wrong with them."""


@dataclass(frozen=True)
class DicomFacts:
    """What is kept of a file's header for worklists, audits and splits; nothing else is."""

    sop_class: str = ""
    """What kind of object the file is."""
    study_uid: str = ""
    series_uid: str = ""
    sop_uid: str = ""
    patient: str = ""
    """Key of the patient, made of the PatientID: equal for the same one within a process only."""
    modality: str = ""
    intent: str = ""
    """FOR PRESENTATION or FOR PROCESSING."""
    view: str = ""
    body_part: str = ""
    manufacturer: str = ""
    age: str = ""
    sex: str = ""
    burned_in: str = ""
    """YES where text is burned into the pixels."""
    bits: int = 0
    """Bits of a pixel that mean something; 0 where the header does not say."""
    spacing: tuple[float, ...] = ()
    """Millimetres between rows and between columns."""


@dataclass(frozen=True)
class Layout:
    """How pixels are stored."""

    rows: int
    columns: int
    samples: int
    """Values of a pixel: 1, or 3 in colour."""
    allocated: int
    """Bits that a value takes."""
    stored: int
    """Bits of them that mean something."""
    high: int
    """The highest of these, counted from 0."""
    signed: bool
    photometric: str
    planar: int
    """0 where the colours of a pixel are neighbours."""

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that can be stored."""
        if self.signed:
            return -(2.0 ** (self.stored - 1)), 2.0 ** (self.stored - 1) - 1.0
        return 0.0, 2.0**self.stored - 1.0

    def sign(self, word: int) -> int:
        """A word of 16 bits as the stored value that it means."""
        value = word & ((1 << self.stored) - 1)
        return value - (value >> (self.stored - 1) << self.stored) if self.signed else value


def facts_of(file: File) -> DicomFacts:
    """The facts of one file."""
    dataset = file.dataset
    patient = dataset.raw(Tag.PatientID)
    return DicomFacts(
        sop_class=dataset.text(Tag.SOPClassUID) or file.meta.text(Tag.MediaStorageSOPClassUID),
        study_uid=dataset.text(Tag.StudyInstanceUID),
        series_uid=dataset.text(Tag.SeriesInstanceUID),
        sop_uid=dataset.text(Tag.SOPInstanceUID),
        patient=hmac.digest(SALT, patient, "sha256").hex()[:16] if patient else "",
        modality=_code(dataset, Tag.Modality),
        intent=_code(dataset, Tag.PresentationIntentType),
        view=_view(dataset),
        body_part=_code(dataset, Tag.BodyPartExamined),
        manufacturer=dataset.text(Tag.Manufacturer),
        age=dataset.text(Tag.PatientAge),
        sex=_code(dataset, Tag.PatientSex),
        burned_in=_code(dataset, Tag.BurnedInAnnotation),
        bits=dataset.word(Tag.BitsStored, 0),
        spacing=_spacing(dataset),
    )


def refusal(facts: DicomFacts, reading: DicomReading) -> str:
    """Why a kind of object is not read, as a sentence without its subject; '' where it is."""
    # An export of a study holds the captures that were sent to it.
    if facts.manufacturer == MANUFACTURER:
        return "is a result of SQUID and no radiograph; leave it out."
    if facts.sop_class not in RADIOGRAPHS:
        return (
            f"is no radiograph (modality {facts.modality[:16] or 'unknown'}, SOP class "
            f"'{facts.sop_class[:64]}'); give CR, DX, MG or secondary captures."
        )
    if is_raw(facts) and reading.for_processing == "refuse":
        return (
            "is for processing, not for presentation: its gray values are the detector's; give "
            "the image for presentation, or train with data.dicom.for_processing = 'window'."
        )
    return ""


def kind_steps(facts: DicomFacts, dataset: Elements) -> tuple[str, ...]:
    """What to note about the kind of an image."""
    steps = [RADIOGRAPHS[facts.sop_class]] if RADIOGRAPHS[facts.sop_class] else []
    if is_raw(facts):
        steps.append("for processing: the detector's gray values")
    derived = [
        text for text in dataset.texts(Tag.ImageType)[:2] if text in ("DERIVED", "SECONDARY")
    ]
    if derived:
        steps.append(f"the file calls it {' and '.join(derived).lower()}")
    return tuple(steps)


def is_raw(facts: DicomFacts) -> bool:
    """Whether an image is as the detector measured it."""
    return facts.sop_class in FOR_PROCESSING or facts.intent == "FOR PROCESSING"


def is_for_presentation(facts: DicomFacts) -> bool:
    """Whether a file is a radiograph as readers see it: CR, DX or MG, and no raw image."""
    radiograph = RADIOGRAPHS.get(facts.sop_class) == "" and facts.manufacturer != MANUFACTURER
    return radiograph and not is_raw(facts)


def gate(facts: DicomFacts, reading: DicomReading) -> str:
    """Why an image is none of those that the recipe asks for; '' where it is one."""
    asked = (
        ("view", facts.view, reading.views),
        ("body part", facts.body_part, reading.body_parts),
    )
    for what, value, taken in asked:
        if taken and value not in {name.upper() for name in taken}:
            found = f"the {what} is {value}" if value else f"the file names no {what}"
            return f"not applicable: {found}, not {' or '.join(taken)}"
    return ""


def layout_of(dataset: Elements) -> Layout:
    """How the pixels are stored; refuses what takes too much memory or has no meaning as gray."""
    rows, columns = dataset.word(Tag.Rows, 0), dataset.word(Tag.Columns, 0)
    check_size(columns, rows)
    frames = dataset.text(Tag.NumberOfFrames) or "1"
    if frames != "1":
        raise DataError(f"has {frames[:20]} frames; give images of one frame.")
    samples = dataset.word(Tag.SamplesPerPixel, 1)
    allocated = dataset.word(Tag.BitsAllocated, 0)
    stored = dataset.word(Tag.BitsStored, allocated)
    high = dataset.word(Tag.HighBit, stored - 1)
    photometric = _code(dataset, Tag.PhotometricInterpretation)
    if samples not in (1, 3) or allocated not in (8, 16, 32):
        raise DataError(
            f"has {samples} samples a pixel of {allocated} bits; save it as gray with 8 or 16 bits."
        )
    if not 1 <= stored <= allocated or not stored - 1 <= high < allocated:
        raise DataError(
            f"stores {stored} bits up to bit {high} of {allocated}, which is impossible; "
            f"export it again."
        )
    if photometric not in (GRAY if samples == 1 else COLOUR):
        raise DataError(f"has '{photometric[:32]}' pixels, not gray ones; save it as MONOCHROME2.")
    if samples == 3 and (allocated != 8 or rows * columns > MAX_COLOUR_PIXELS):
        raise DataError(
            f"has {rows * columns:,} pixels in colour with {allocated} bits; save it as gray."
        )
    signed = bool(dataset.word(Tag.PixelRepresentation, 0))
    planar = dataset.word(Tag.PlanarConfiguration, 0)
    return Layout(rows, columns, samples, allocated, stored, high, signed, photometric, planar)


def aspect_note(dataset: Elements) -> tuple[str, ...]:
    """A note where pixels are not square, since resizing keeps no aspect ratio."""
    spacing = _spacing(dataset) or _finite(dataset.numbers(Tag.PixelAspectRatio))
    if len(spacing) != 2 or min(spacing) <= 0 or max(spacing) / min(spacing) - 1 <= SQUARE:
        return ()
    return (f"pixels are not square: rows {spacing[0]:g} apart, columns {spacing[1]:g}",)


def _spacing(dataset: Elements) -> tuple[float, ...]:
    """Millimetres between rows and between columns; () where the file names no such pair."""
    tags = Tag.PixelSpacing, Tag.ImagerPixelSpacing
    return next(filter(None, (_finite(dataset.numbers(tag)) for tag in tags)), ())


def _finite(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """The numbers, or () where one of them is none."""
    return numbers if all(map(math.isfinite, numbers)) else ()


def _view(dataset: Elements) -> str:
    """The view by its name or, as many DX images have it, by its code alone."""
    if view := _code(dataset, Tag.ViewPosition):
        return view
    item = dataset.item(Tag.ViewCodeSequence)
    if item is None or item.text(Tag.CodingSchemeDesignator).upper() not in SNOMED:
        return ""
    return VIEW_CODES.get(item.text(Tag.CodeValue).upper(), "")


def _code(dataset: Elements, tag: int) -> str:
    """A code of the standard, in upper case."""
    return re.sub(r"\s+", " ", dataset.text(tag)).upper()
