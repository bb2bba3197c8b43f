"""What made a result, as every result object names it."""

import hashlib
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Algorithm:
    """A trained detector at one operating point. DICOM calls it an algorithm (TID 4019)."""

    name: str
    """The method, e.g. `squid`."""
    version: str
    """Version of the software."""
    model: str
    """SHA-256 of the weights, in hexadecimal digits."""
    calibration: str
    """The healthy images behind p-values and threshold, in words."""
    calibration_digest: str
    """SHA-256 of the calibration, in hexadecimal digits."""
    threshold: float | None
    """Scores from here on reach the operating point; None where there is none."""
    rate: float | None = None
    """Its target false-positive rate; None where the threshold was set in another way."""
    meaning: str = ""
    """What the threshold keeps, in words; '' where there is none."""
    heatmap: str = ""
    """The kind of heatmap that is shown; '' where none is."""

    @property
    def identity(self) -> str:
        """Two results of an image are the same result where this is the same: all that results say
        or show of the algorithm. An archive must not take one that differs for a copy."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Sentences for a report."""
        point = (f"Operating point: {self.meaning}",) if self.meaning else ()
        return (
            "Research use only: not a medical device, not for diagnosis",
            f"SHA-256 of the model: {self.model}",
            f"SHA-256 of the calibration: {self.calibration_digest}",
            f"Calibration: {self.calibration}",
            *point,
        )
