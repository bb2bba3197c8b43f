"""What every dataset's settings have in common."""

from collections.abc import Callable

import numpy as np
from pydantic import Field

from squid.config import Config
from squid.data.image_set import ImageSet, Splits, join
from squid.errors import DataError

Progress = Callable[[int, int], None]
"""Told how many files of how many are read."""


class DataConfig(Config):
    """A dataset: where it lies and how it is split."""

    name: str
    contamination: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of anomalous images in the training set. Zero means healthy images only."""
    seed: int = 0
    """Of the split, not of the training."""

    def load(self, size: int, progress: Progress | None = None) -> Splits:
        """The images, gray and `size` pixels square."""
        raise NotImplementedError

    def rng(self, *stream: int) -> np.random.Generator:
        """Random numbers of this seed; each `stream` has its own."""
        return np.random.default_rng([self.seed, *stream])

    def contaminant_count(self, normals: int) -> int:
        """How many anomalous images beside so many normals make up `contamination`."""
        return round(self.contamination / (1.0 - self.contamination) * normals)

    def contaminants(self, normals: int, available: int) -> np.ndarray:
        """Which of the `available` anomalous training images join so many normals."""
        wanted = self.contaminant_count(normals)
        if self.contamination and wanted > available:
            raise DataError(
                f"contamination = {self.contamination:g} needs {wanted} anomalous training images, "
                f"and '{self.name}' has {available}; lower it."
            )
        return np.sort(self.rng(1).permutation(available)[:wanted])

    def contaminate(self, normals: ImageSet, anomalous: ImageSet | None) -> ImageSet:
        """The training set that `contamination` asks for."""
        if not self.contamination:
            return normals
        chosen = self.contaminants(len(normals), 0 if anomalous is None else len(anomalous))
        return normals if anomalous is None else join(normals, anomalous.select(chosen))
