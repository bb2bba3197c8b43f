"""Results as files: one for each object, side by side in a folder."""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydicom.dataset import Dataset

from squid.calibration import Calibration
from squid.data.base import Progress
from squid.data.dicom import is_dicom
from squid.data.image import read_image, resize
from squid.data.levels import RangeWarning
from squid.data.opening import open_regular
from squid.detector import Detector, Prediction
from squid.dicom.algorithm import Algorithm
from squid.dicom.results import results
from squid.durable import replacing
from squid.errors import DataError
from squid.evaluation.default_heatmap import default_heatmap
from squid.outputs.results import Results

MAGIC = 132
"""Bytes in which a DICOM file says that it is one."""


@dataclass(frozen=True)
class Written:
    """What was made of the scored images."""

    files: int
    refused: tuple[tuple[str, str], ...]
    """Images without results, each with the reason."""
    heatmap_note: str = ""
    """Why the heatmap is not the method's first kind, or there is none; '' where it is."""


def check_sources(sources: Sequence[str]) -> None:
    """An error where no image is DICOM: there is no study that results could join."""
    if not any(_is_dicom_file(source) for source in sources):
        raise DataError(
            f"None of the {len(sources):,} images is a DICOM file ({sources[0]} is the first), so "
            "there can be no DICOM results; leave --dicom-out out."
        )


def _is_dicom_file(source: str) -> bool:
    try:
        with open(source, "rb", opener=open_regular) as file:
            return is_dicom(file.read(MAGIC))
    except (OSError, ValueError):  # scoring says what is wrong with it
        return False


def write_files(
    detector: Detector,
    scored: Results,
    folder: Path,
    *,
    gsps: bool = False,
    progress: Progress | None = None,
) -> Written:
    """The results of each image with a score; an image that can have none is named and passed."""
    shown = default_heatmap(detector)
    algorithm = describe(detector, scored, shown.kind or "")
    folder.mkdir(parents=True, exist_ok=True)
    files, done, refused = 0, 0, []
    for prediction in scored.predictions():
        if prediction.score is None:
            continue
        try:
            made = _results_of(prediction, detector, algorithm, gsps)
        except DataError as error:
            refused.append((prediction.source, str(error)))
            continue
        for instance in made:
            _save(instance, folder)
        files += len(made)
        done += 1
        if progress is not None:
            progress(done, scored.counts.scored)
    return Written(files, tuple(refused), shown.reason)


def describe(detector: Detector, scored: Results, heatmap: str) -> Algorithm:
    """The detector, its operating point and the heatmap it shows, as results name them."""
    about, flagging, calibration = scored.about, scored.flagging, detector.calibration
    return Algorithm(
        name=about.method,
        version=about.version,
        model=about.digest,
        calibration=f"{about.calibration}: {calibration.heldout} {calibration.source}",
        calibration_digest=_digest(calibration),
        threshold=flagging.threshold,
        rate=flagging.rate,
        meaning=flagging.meaning,
        heatmap=heatmap,
    )


def _digest(calibration: Calibration) -> str:
    return hashlib.sha256(calibration.model_dump_json().encode()).hexdigest()


def _results_of(
    prediction: Prediction, detector: Detector, algorithm: Algorithm, gsps: bool
) -> list[Dataset]:
    path, recipe = Path(prediction.source), detector.recipe
    if not _is_dicom_file(prediction.source):
        raise DataError("It is not a DICOM file, so there is no study that results could join.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)  # scoring has warned of it
        image = read_image(path, reading=recipe.data.reading).pixels  # (1, rows, columns)
    heatmap = None
    if algorithm.heatmap:
        batch = resize(image, recipe.method.size)[None]  # of one image
        heatmap = detector.explain(batch, algorithm.heatmap)[0]
    return results(path, prediction, image[0].numpy(), heatmap, algorithm=algorithm, gsps=gsps)


def _save(instance: Dataset, folder: Path) -> None:
    """Under a name that says nothing of the patient or the study, and is the same next time."""
    name = hashlib.sha256(str(instance.SOPInstanceUID).encode()).hexdigest()
    with replacing(folder / f"{name}.dcm") as partial:
        instance.save_as(partial, enforce_file_format=True)
