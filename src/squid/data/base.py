"""The settings that all datasets have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from squid.config import Config, Damaged
from squid.data.image_set import ANOMALOUS, NORMAL, Labelled, Splits
from squid.data.levels import WORD
from squid.data.reading import DicomReading, Reading
from squid.errors import DataError
from squid.places import data_candidates, data_folder, missing

ORIGINAL_SIDE = 1024
"""Pixels of an image as NIH and RSNA published it, in which boxes are given."""

Progress = Callable[[int, int], None]
"""Called with the number of files read so far and of all files."""


class DataConfig(Config):
    """A dataset: where its files are and how it is split."""

    name: str
    contamination: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the training images that are anomalous. They replace healthy ones, so that every
    share trains on as many images, for as many steps. Zero means healthy images only."""
    training_normals: int | None = Field(None, ge=1)
    """How many healthy training images are used, the first ones of a random order, so that a
    smaller number is a part of a larger one; all when left out. `contamination` then replaces the
    last of them."""
    seed: int = 0
    """Seed of the split; the training has its own."""
    bits: int | None = Field(None, ge=1, le=WORD)
    """Significant bits of 16-bit images; what each file declares when left out."""
    damaged: Damaged = "refuse"
    """What to do with a file whose checksum, texts or codes are broken."""
    dicom: DicomReading = DicomReading()
    """How DICOM files are read."""

    @property
    def reading(self) -> Reading:
        """How files are read, in training and in scoring alike."""
        return Reading(bits=self.bits, damaged=self.damaged, dicom=self.dicom)

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        """The images, gray and `size` pixels square."""
        raise NotImplementedError

    def resolved(self) -> Self:
        """A copy with absolute paths: it reads the same files from every working directory."""
        return self

    def rng(self, *stream: int) -> np.random.Generator:
        """A generator of random numbers for each `stream` of this seed."""
        return np.random.default_rng([self.seed, *stream])

    def training_count(self, normals: int) -> int:
        """How many images are trained on where there are so many healthy ones."""
        wanted = normals if self.training_normals is None else self.training_normals
        if wanted > normals:
            raise DataError(
                f"training_normals = {wanted} is more than the {normals} healthy training images "
                f"of '{self.name}'; lower it."
            )
        return wanted

    def contaminant_count(self, normals: int) -> int:
        """How many of those trained on are anomalous."""
        count = self.training_count(normals)
        wanted = round(self.contamination * count)
        if wanted and wanted == count:
            raise DataError(
                f"contamination = {self.contamination:g} leaves no healthy one of {count} training "
                f"images of '{self.name}'; lower it."
            )
        return wanted

    def contaminants(self, normals: int, available: int) -> np.ndarray:
        """Indices of the anomalous training images, of those `available`, that replace some of the
        normals."""
        wanted = self.contaminant_count(normals)
        if wanted > available:
            raise DataError(
                f"contamination = {self.contamination:g} needs {wanted} anomalous training images, "
                f"and '{self.name}' has {available}; lower it."
            )
        return np.sort(self.rng(1).permutation(available)[:wanted])

    def chosen_normals(self, normals: int) -> np.ndarray:
        """Indices of the healthy training images that are used, of so many."""
        wanted = self.training_count(normals) - self.contaminant_count(normals)
        return np.sort(self.rng(4).permutation(normals)[:wanted])

    def contaminate(self, given: Labelled) -> Labelled:
        """The training set: the normals of `given`, some replaced by anomalies if asked for."""
        normals, anomalous = (np.flatnonzero(given.labels == k) for k in (NORMAL, ANOMALOUS))
        kept = normals[self.chosen_normals(len(normals))]
        added = anomalous[self.contaminants(len(normals), len(anomalous))]
        return given.select(np.concatenate([kept, added]))


class FileDataConfig(DataConfig):
    """A dataset that is read from a folder or a file."""

    folders: ClassVar[tuple[str, ...]] = ()
    """Names that its folder can have in the data folder; the first one found is taken."""

    root: Path | None = None
    """Its folder. A relative path is taken from the working directory, then from the data folder
    (`SQUID_DATA`); unset, it is looked for in the data folder under its usual names."""

    def find_root(self) -> Path:
        """The folder or file of the dataset, absolute."""
        if self.root is None:
            what, candidates = f"{self.name} data", [data_folder() / name for name in self.folders]
        else:
            what, candidates = f"folder or file {self.root}", data_candidates(self.root)
        found = next((path for path in candidates if path.exists()), None)
        if found is None:
            raise DataError(missing(what, candidates))
        return found

    def find_folder(self) -> Path:
        """The folder of the dataset, for one that is never a single file."""
        root = self.find_root()
        if not root.is_dir():
            raise DataError(f"{root} is not a folder.")
        return root

    def resolved(self) -> Self:
        return self.model_copy(update={"root": self.find_root()})


class PatientSplitConfig(FileDataConfig):
    """A dataset without an official split: its patients are split at random."""

    validation_share: float = Field(0.1, gt=0.0, lt=1.0)
    """Share of the patients whose images validate."""
    test_share: float = Field(0.3, gt=0.0, lt=1.0)
    """Share of the patients whose images are tested on."""

    @property
    def training_share(self) -> float:
        """Share of the patients whose images are trained on."""
        return 1.0 - self.validation_share - self.test_share

    @model_validator(mode="after")
    def _some_train(self) -> Self:
        if self.validation_share + self.test_share >= 1.0:
            raise ValueError(
                "validation_share and test_share leave no patient to train on; lower them."
            )
        return self
