"""All results for one image: report, secondary capture and, on request, presentation state."""

import warnings
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydicom import config
from pydicom.dataset import Dataset

from squid.detector import Prediction
from squid.dicom.algorithm import Algorithm
from squid.dicom.capture import capture
from squid.dicom.presentation import presentation
from squid.dicom.source import Source
from squid.dicom.sr import report


def results(
    source: Path | Dataset,
    prediction: Prediction,
    image: NDArray[np.float32],
    heatmap: NDArray[np.float32] | None,
    *,
    algorithm: Algorithm,
    gsps: bool = False,
    made: datetime | None = None,
) -> list[Dataset]:
    """Objects of the source's study, ready to be saved and sent.

    `image` (rows, columns) is the source in [0, 1] as it is shown to a reader; `heatmap` (h, w) is
    laid over it, and None where there is none that shows anything. An image for which no score
    means anything has no results.
    """
    if prediction.score is None:
        return []
    made = made or datetime.now()
    # Values that break the standard are the source's, and are repeated as they are.
    with config.disable_value_validation(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header = Source.of(source)
        made_of = [
            report(header, prediction, algorithm, made),
            capture(header, image, prediction, heatmap, algorithm, made),
        ]
        if gsps:
            made_of.append(presentation(header, prediction, heatmap, algorithm, made))
    return made_of
