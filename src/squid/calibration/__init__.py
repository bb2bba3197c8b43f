"""The meaning of scores, measured on healthy images only, the same way for every method.

calibration.py       held-out healthy scores: standardised scores, p-values, thresholds
operating_point.py   a threshold for a false-positive rate, and where the true rate lies
drift.py             whether scores at a site differ from those held out
false_discovery.py   which images of a worklist to flag, by the share of false ones among them
groups.py            false-positive rates by view, machine or age
facts.py             exposure and sharpness of images, which scores may follow
"""

from squid.calibration.calibration import (
    RATE,
    RATES,
    UNCALIBRATED,
    Calibration,
    CalibrationNote,
    calibrate,
)
from squid.calibration.drift import Drift
from squid.calibration.operating_point import OperatingPoint, percent

__all__ = [
    "RATE",
    "RATES",
    "UNCALIBRATED",
    "Calibration",
    "CalibrationNote",
    "Drift",
    "OperatingPoint",
    "calibrate",
    "percent",
]
