"""The recipe says how files are read, in training and in scoring alike."""

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from pydantic import ValidationError

from squid.config import parse
from squid.data.base import DataConfig
from squid.data.folder import Folder
from squid.data.inputs import read_images
from squid.data.reading import DicomReading, Reading

SIZE = 16


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    """A folder of five images of twelve bits in words of sixteen."""
    rng = np.random.default_rng(0)
    for i in range(5):
        values = rng.integers(0, 4096, (20, 20)).astype(np.uint16)
        PIL.Image.fromarray(values).save(tmp_path / f"{i}.png")
    return tmp_path


def test_bits_of_the_recipe_hold_for_training_and_scoring(twelve: Path) -> None:
    data = parse(Folder, {"root": str(twelve), "bits": 12}, "recipe")
    splits = data.load(SIZE)
    scored = read_images(twelve, SIZE, reading=data.reading)
    given = {
        name: image
        for part in (splits.train, splits.validation)
        for name, image in zip(part.names, part.pixels.numpy(), strict=True)
    }
    assert len(given) == 5
    for source, pixels, steps in zip(
        scored.sources, scored.pixels.numpy(), scored.steps, strict=True
    ):
        assert np.array_equal(pixels, given[Path(source).name])
        assert steps == ("12 bit scaled",)
        assert pixels.mean() > 100


def test_a_table_for_dicom_keeps_the_other_defaults() -> None:
    data = parse(DataConfig, {"name": "any", "dicom": {"views": ["PA"]}}, "recipe")
    assert data.reading == Reading(dicom=DicomReading(views=("PA",)))
    assert data.reading.dicom.voi == "file"


@pytest.mark.parametrize("bits", [0, 17])
def test_bits_that_no_word_holds_are_refused(bits: int) -> None:
    with pytest.raises(ValidationError):
        Reading(bits=bits)
