"""CheXpert (Irvin et al., AAAI 2019): the PA frontal images of `CheXpert-v1.0[-small]/train.csv`.

- What: 224,316 chest X-rays of 65,240 patients of Stanford Hospital; labels mined from reports.
- Where: https://stanfordmlgroup.github.io/competitions/chexpert/ (the small version, 11 GB, does).
- Licence: Stanford's research use agreement, non-commercial.
- Layout: train.csv next to train/patient*/study*/view*_frontal.jpg.

The paper tests on 250 normal and 250 abnormal images of the training set, with at least 10 of each
of 12 findings. Its list is not public, so ours is random with a fixed seed, and by patient: one who
has an image in one split has none in another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from squid.data.base import FileDataConfig, Progress
from squid.data.files import Unreadable, read_splits, subfolders
from squid.data.image_set import ANOMALOUS, NORMAL, FileSet, Splits
from squid.data.tables import inside, read_table
from squid.errors import DataError

FINDINGS = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
)
"""The paper's twelve: all of CheXpert's but No Finding and Support Devices."""
POSITIVE, UNCERTAIN = 1.0, -1.0


class CheXpert(FileDataConfig):
    """CheXpert PA frontal images (paper, sec. 4.2)."""

    folders = ("chexpert", "CheXpert-v1.0-small", "CheXpert-v1.0")

    name: Literal["chexpert"] = "chexpert"
    root: Path | None = None
    """The folder of train.csv, or the one that holds CheXpert-v1.0 or CheXpert-v1.0-small."""
    uncertain: Literal["ignore", "positive", "negative"] = "ignore"
    """Labels of -1; `ignore` leaves out an image without any certain label."""
    test_normals: int = 250
    test_anomalous: int = 250
    test_per_finding: int = 10
    """The least number of test images of each finding."""
    validation_normals: int = 100
    validation_anomalous: int = 100
    unreadable: Unreadable = "refuse"
    """What to do with a file that is not a readable image."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        files = self._files(_folder(self.find_folder()))
        test = files.select(self._choose_test(files))
        rest = files.select(_of_other_patients(files, test))
        validation = rest.select(self._choose_validation(rest))
        train = rest.select(_of_other_patients(rest, validation))
        return read_splits(
            self.contaminate(train),
            validation,
            test,
            size=size,
            official=False,
            reading=self.reading,
            unreadable=self.unreadable,
            progress=progress,
        )

    def _files(self, folder: Path) -> FileSet:
        """Every PA frontal image that is surely normal or surely abnormal."""
        rows = read_table(
            folder / "train.csv",
            "Path",
            "AP/PA",
            "No Finding",
            *FINDINGS,
            numbers=("No Finding", *FINDINGS),
        )
        labelled = [(row, self._findings(row)) for row in rows if row["AP/PA"] == "PA"]
        kept = [(row, found) for row, found in labelled if found is not None]
        # The CSV's paths begin with the name of the published folder.
        relative = [Path(*Path(row["Path"]).parts[1:]) for row, _ in kept]
        return FileSet(
            paths=tuple(inside(folder, str(path)) for path in relative),
            names=tuple(path.as_posix() for path in relative),
            labels=np.array([ANOMALOUS if f else NORMAL for _, f in kept], dtype=np.int64),
            patients=tuple(path.parts[1] for path in relative),
            findings=tuple("|".join(found) for _, found in kept),
            columns={
                "view": ("PA",) * len(kept),
                "sex": tuple(row.get("Sex", "")[:1] for row, _ in kept),
                "age": tuple(row.get("Age", "") for row, _ in kept),
            },
        )

    def _findings(self, row: dict[str, str]) -> list[str] | None:
        """The findings of an image, [] for a normal one, None for one that is neither."""
        values = {finding: float(row[finding] or 0.0) for finding in FINDINGS}
        counted = {POSITIVE, UNCERTAIN} if self.uncertain == "positive" else {POSITIVE}
        found = [finding for finding, value in values.items() if value in counted]
        if found:
            return found
        unclear = self.uncertain == "ignore" and UNCERTAIN in values.values()
        return None if unclear or float(row["No Finding"] or 0.0) != POSITIVE else []

    def _choose_test(self, files: FileSet) -> np.ndarray:
        """Indices of random images of both classes, with enough of each finding."""
        rng = self.rng(0)
        normal = rng.permutation(np.flatnonzero(files.labels == NORMAL))
        abnormal = rng.permutation(np.flatnonzero(files.labels == ANOMALOUS))
        chosen = self._choose_findings(files.findings or (), abnormal.tolist())
        fill = [i for i in abnormal if i not in chosen]
        chosen |= set(fill[: max(0, self.test_anomalous - len(chosen))])
        self._enough(len(normal), self.test_normals, "test_normals")
        self._enough(len(chosen), self.test_anomalous, "test_anomalous")
        return np.sort([*normal[: self.test_normals], *chosen])

    def _choose_findings(self, findings: Sequence[str], order: Sequence[int]) -> set[int]:
        """The first images in `order` that together show each finding often enough."""
        chosen: set[int] = set()
        for finding in FINDINGS:
            showing = [i for i in order if finding in findings[i].split("|")]
            self._enough(len(showing), self.test_per_finding, f"{finding} in test_per_finding")
            fresh = [i for i in showing if i not in chosen]
            have = len(showing) - len(fresh)
            chosen |= set(fresh[: max(0, self.test_per_finding - have)])
        return chosen

    def _choose_validation(self, rest: FileSet) -> np.ndarray:
        """Indices of random images of both classes."""
        rng = self.rng(3)
        chosen = []
        for label, count, field in (
            (NORMAL, self.validation_normals, "validation_normals"),
            (ANOMALOUS, self.validation_anomalous, "validation_anomalous"),
        ):
            found = rng.permutation(np.flatnonzero(rest.labels == label))
            self._enough(len(found), count, field)
            chosen.append(found[:count])
        return np.sort(np.concatenate(chosen))

    def _enough(self, available: int, wanted: int, field: str) -> None:
        if available < wanted:
            raise DataError(
                f"CheXpert has {available} images left for {field} = {wanted}; lower it."
            )


def _folder(root: Path) -> Path:
    """The folder of train.csv."""
    folders = subfolders(root)
    for folder in (root, *(f for name, f in folders.items() if name.startswith("chexpert-v1.0"))):
        if (folder / "train.csv").is_file():
            return folder
    raise DataError(f"There is no train.csv in {root} or in a CheXpert-v1.0 folder in it.")


def _of_other_patients(files: FileSet, taken: FileSet) -> np.ndarray:
    """A mask of the files whose patient has none in `taken`."""
    patients = set(taken.patients or ())
    return np.array([patient not in patients for patient in files.patients or ()], dtype=bool)
