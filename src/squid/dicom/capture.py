"""The secondary capture of a result: a picture that every viewer shows."""

from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.uid import RLELossless

from squid.detector import Prediction
from squid.dicom import codes
from squid.dicom.algorithm import Algorithm
from squid.dicom.instance import CAPTURE, DESCRIPTION, new_instance
from squid.dicom.picture import picture
from squid.dicom.source import LOSSY, POSITION, Source


def capture(
    source: Source,
    image: NDArray[np.float32],
    prediction: Prediction,
    heatmap: NDArray[np.float32] | None,
    algorithm: Algorithm,
    made: datetime,
) -> Dataset:
    """A secondary capture image of `picture`, in RGB and run-length encoded."""
    instance = new_instance(source, CAPTURE, algorithm, made)
    instance.ContentDate = instance.DateOfSecondaryCapture = made.strftime("%Y%m%d")
    instance.ContentTime = instance.TimeOfSecondaryCapture = made.strftime("%H%M%S")
    instance.ConversionType = "WSD"  # workstation
    instance.ImageType = ["DERIVED", "SECONDARY"]
    instance.ImageComments = DESCRIPTION
    instance.DerivationDescription = "Result of an anomaly detector on the source image"
    reference = source.reference()
    reference.PurposeOfReferenceCodeSequence = [codes.SOURCE_IMAGE]
    instance.SourceImageSequence = [reference]
    instance.BurnedInAnnotation = "YES"
    # The picture shows the body as the source does. Empty says: not known.
    for keyword in POSITION:
        setattr(instance, keyword, None)
    source.copy((*POSITION, *LOSSY), instance)
    _add_pixels(instance, picture(image, heatmap, prediction, algorithm, spacing=source.spacing))
    return instance


def _add_pixels(instance: Dataset, pixels: NDArray[np.uint8]) -> None:
    instance.Rows, instance.Columns, instance.SamplesPerPixel = pixels.shape
    instance.PhotometricInterpretation = "RGB"
    instance.PlanarConfiguration = 0
    instance.BitsAllocated = instance.BitsStored = 8
    instance.HighBit = 7
    instance.PixelRepresentation = 0
    instance.compress(RLELossless, pixels, generate_instance_uid=False)
