"""What a user hands over becomes gray pixels, or one clear error."""

import warnings

import numpy as np
import PIL.Image
import pytest
import torch

from squid.data.inputs import read_images
from squid.errors import DataError

GRAY = np.arange(64, dtype=np.uint8).reshape(8, 8)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (1, 1, 8, 8)])
@pytest.mark.parametrize("kind", ["array", "tensor", "float"])
def test_gray_arrays_of_every_shape_give_the_same_pixels(shape: tuple[int, ...], kind: str) -> None:
    given = GRAY.reshape(shape)
    images = {"array": given, "tensor": torch.from_numpy(given), "float": given / 255.0}[kind]
    loaded = read_images(images, 8)
    assert torch.equal(loaded.pixels, torch.from_numpy(GRAY)[None, None])
    assert loaded.sources == ("image 0",)
    assert loaded.places == (0,)


@pytest.mark.parametrize("shape", [(48, 48, 3), (48, 48, 4), (2, 48, 48, 3), (2, 3, 48, 48)])
def test_colour_arrays_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="are not gray"):
        read_images(np.zeros(shape, np.uint8), 8)


def test_read_only_arrays_are_read_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = np.asarray(PIL.Image.fromarray(GRAY))
        assert torch.equal(read_images(given, 8).pixels[0, 0], torch.from_numpy(GRAY))


@pytest.mark.parametrize("images", [None, 3, b"bytes", [GRAY], PIL.Image.fromarray(GRAY)])
def test_other_types_are_refused_in_one_sentence(images: object) -> None:
    with pytest.raises(DataError, match="are not understood; give a file"):
        read_images(images, 8)  # type: ignore[arg-type]


def test_floats_outside_the_unit_range_and_wide_integers_are_refused() -> None:
    with pytest.raises(DataError, match="divide by"):
        read_images(GRAY.astype(np.float32), 8)
    with pytest.raises(DataError, match="type uint16"):
        read_images(GRAY.astype(np.uint16), 8)
