"""The presentation state of a result: a contour and a sentence that a viewer lays over the source
image, whose pixels stay as they are."""

from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from squid.detector import Prediction
from squid.dicom.algorithm import Algorithm
from squid.dicom.instance import DESCRIPTION, PRESENTATION, new_instance
from squid.dicom.region import hottest_region
from squid.dicom.source import MODALITY_LUT, WINDOW, Source
from squid.dicom.wording import BANNER, rarity

LAYER = "SQUID"
TEXT_BOX = ((0.02, 0.02), (0.7, 0.1))
"""Left, top and right, bottom of the text, as shares of what is displayed."""


def presentation(
    source: Source,
    prediction: Prediction,
    heatmap: NDArray[np.float32] | None,
    algorithm: Algorithm,
    made: datetime,
) -> Dataset:
    """A grayscale softcopy presentation state: the image as its file wants it shown, with the
    contour of the hottest region and the p-value in words."""
    instance = new_instance(source, PRESENTATION, algorithm, made)
    instance.ContentLabel = LAYER
    instance.ContentDescription = DESCRIPTION
    instance.ContentCreatorName = None
    instance.PresentationCreationDate = made.strftime("%Y%m%d")
    instance.PresentationCreationTime = made.strftime("%H%M%S")
    series = source.series_reference()
    series.ReferencedImageSequence = [source.reference()]
    instance.ReferencedSeriesSequence = [series]
    instance.DisplayedAreaSelectionSequence = [_whole_image(source)]
    instance.GraphicLayerSequence = [_layer()]
    instance.GraphicAnnotationSequence = [_annotation(source, prediction, heatmap)]
    # The archive's check wants it there, empty where the source does not know.
    instance.Laterality = None
    source.copy(("Laterality",), instance)
    _add_gray_values(instance, source)
    return instance


def _whole_image(source: Source) -> Dataset:
    rows, columns = source.size
    area = Dataset()
    area.DisplayedAreaTopLeftHandCorner = [1, 1]
    area.DisplayedAreaBottomRightHandCorner = [columns, rows]
    area.PresentationSizeMode = "SCALE TO FIT"
    if source.spacing is None:
        area.PresentationPixelAspectRatio = [1, 1]
    else:
        area.PresentationPixelSpacing = list(source.spacing)
    return area


def _layer() -> Dataset:
    layer = Dataset()
    layer.GraphicLayer = LAYER
    layer.GraphicLayerOrder = 1
    layer.GraphicLayerDescription = DESCRIPTION
    return layer


def _annotation(
    source: Source, prediction: Prediction, heatmap: NDArray[np.float32] | None
) -> Dataset:
    annotation = Dataset()
    annotation.ReferencedImageSequence = [source.reference()]
    annotation.GraphicLayer = LAYER
    text = Dataset()
    text.BoundingBoxAnnotationUnits = "DISPLAY"
    text.BoundingBoxTopLeftHandCorner, text.BoundingBoxBottomRightHandCorner = map(list, TEXT_BOX)
    text.BoundingBoxTextHorizontalJustification = "LEFT"
    text.UnformattedTextValue = f"{BANNER}\r\n{rarity(prediction)}"
    annotation.TextObjectSequence = [text]
    contour = None if heatmap is None else hottest_region(heatmap, source.size)
    if contour is not None:
        annotation.GraphicObjectSequence = [_polyline(contour)]
    return annotation


def _polyline(points: NDArray[np.float64]) -> Dataset:
    line = Dataset()
    line.GraphicAnnotationUnits = "PIXEL"
    line.GraphicDimensions = 2
    line.NumberOfGraphicPoints = len(points)
    line.GraphicData = points.ravel().tolist()
    line.GraphicType = "POLYLINE"
    line.GraphicFilled = "N"
    return line


def _add_gray_values(instance: Dataset, source: Source) -> None:
    """The transformations of the source: a presentation state replaces all of them."""
    source.copy(MODALITY_LUT, instance)
    if "RescaleIntercept" in instance:
        instance.setdefault("RescaleType", "US")
    window = Dataset()
    # A window without a width is none.
    source.copy(("VOILUTSequence",) if source.has_voi_lut else WINDOW, window)
    if source.has_voi_lut or source.has_window:
        instance.SoftcopyVOILUTSequence = [window]
    instance.PresentationLUTShape = "INVERSE" if source.inverted else "IDENTITY"
