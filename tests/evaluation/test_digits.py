import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import Tensor

from squid.data.digitanatomy import DigitAnatomy, join_cells, split_cells
from squid.data.image_set import Splits
from squid.errors import DataError
from squid.evaluation.digits import (
    TRUSTED,
    DigitMeasures,
    faithfulness,
    localisation,
    measure_digits,
    train_reader,
)
from squid.methods.base import Method, MethodConfig


@pytest.fixture(scope="module")
def splits() -> Splits:
    return DigitAnatomy(train=200, validation=1, test=40).load(24)


@pytest.fixture(scope="module")
def reader(splits):
    return train_reader(splits.train)


class Healer(Method):
    """Knows the healthy digits by heart: keeps a cell that resembles one, else draws their mean."""

    config = MethodConfig(name="toy")

    def __init__(self, splits: Splits) -> None:
        super().__init__()
        self.known = split_cells(splits.train.pixels.float() / 255).flatten(2).transpose(0, 1)

    def _distances(self, images: Tensor) -> Tensor:
        cells = split_cells(images).flatten(2).transpose(0, 1)  # (9, n, d)
        return torch.cdist(cells, self.known).amin(-1).T  # (n, 9)

    def score(self, images: Tensor) -> Tensor:
        return self._distances(images).amax(1)

    def heatmap(self, images: Tensor) -> Tensor:
        cells = self._distances(images)[:, :, None, None, None]
        return join_cells(cells.expand(-1, -1, 1, 8, 8))[:, 0]

    def reconstruct(self, images: Tensor) -> Tensor:
        cells = split_cells(images)
        mean = self.known.mean(1).view(1, 9, 1, 8, 8)
        strange = (self._distances(images) > 1.5)[:, :, None, None, None]
        return join_cells(torch.where(strange, mean, cells))


class Copier(Method):
    """Draws what it sees."""

    config = MethodConfig(name="toy")

    def score(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))

    def reconstruct(self, images: Tensor) -> Tensor:
        return images


class Constant(Copier):
    """Draws one healthy picture whatever it sees."""

    def __init__(self, picture: Tensor) -> None:
        super().__init__()
        self.picture = picture

    def reconstruct(self, images: Tensor) -> Tensor:
        return self.picture.expand_as(images)


class ScoringMethod(Method):
    config = MethodConfig(name="toy")

    def score(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))


def test_the_reader_can_be_trusted_and_reads_no_digit_into_faint_traces(reader, splits):
    assert TRUSTED <= reader.accuracy(splits.test) <= 1
    faint = splits.test.normals.pixels.float() / 255 * 0.1
    assert not reader.right(faint).any()


def test_a_healer_is_measured_well(splits, reader):
    measures = measure_digits(Healer(splits), splits, reader=reader)
    assert measures.trusted
    assert set(measures.kinds) == {"missing", "misordered", "flipped", "novel"}
    assert measures.kinds["missing"].auc.value > 0.95
    assert measures.localisation["method"] > 0.9
    assert measures.restoration.anomalous > 0.8
    assert measures.restoration.untouched > 0.95
    assert measures.restoration.blank == 1.0
    assert measures.restoration.faithfulness > 0.8


def test_a_copier_is_faithful_and_restores_little(splits, reader):
    measures = measure_digits(Copier(), splits, reader=reader)
    assert measures.restoration.faithfulness == 1.0
    assert measures.restoration.untouched == reader.accuracy(splits.test)
    assert measures.restoration.anomalous < 0.4  # a turned 8 or 1 still reads as itself
    assert measures.restoration.blank == 0.0
    assert measures.localisation == {"residual": 0.5}


def test_a_constant_picture_restores_all_and_is_not_faithful(splits, reader):
    picture = (splits.train.pixels.float() / 255).mean(0)
    restoration = measure_digits(Constant(picture), splits, reader=reader).restoration
    assert restoration.anomalous > 0.9
    assert 0.4 < restoration.faithfulness < 0.6


def test_a_kind_alone_is_counted_apart(splits, reader):
    measures = measure_digits(Copier(), splits, reader=reader)
    kinds = [set(row[row > 0]) for row in splits.test.cells]
    assert measures.kinds["missing"].count == sum(1 in kind for kind in kinds)
    assert measures.kinds_alone["missing"].count == sum({1} == kind for kind in kinds)


def test_noise_is_seeded_and_makes_things_harder(splits, reader):
    method = Healer(splits)
    clean = measure_digits(method, splits, reader=reader)
    noisy = measure_digits(method, splits, reader=reader, noise=0.6)
    assert noisy == measure_digits(method, splits, reader=reader, noise=0.6)
    assert noisy.noise == 0.6
    assert noisy.localisation["method"] < clean.localisation["method"]


def test_batches_change_nothing_and_measures_travel_as_json(splits, reader):
    measures = measure_digits(Copier(), splits, reader=reader, batch_size=7)
    assert measures == measure_digits(Copier(), splits, reader=reader, batch_size=100)
    text = json.dumps(measures.model_dump(mode="json"), allow_nan=False)
    assert DigitMeasures.model_validate(json.loads(text)) == measures


def test_a_method_that_draws_nothing_has_no_restoration(splits, reader):
    measures = measure_digits(ScoringMethod(), splits, reader=reader)
    assert measures.restoration is None
    assert measures.localisation == {}


def test_localisation_ranks_cells():
    untouched = np.ones((2, 9), dtype=bool)
    untouched[0, 4] = untouched[1, 8] = False
    heat = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0))
    heat[0, 3:6, 3:6] += 2
    heat[1, 6:, 6:] += 2
    assert localisation(heat, untouched) == 1.0
    assert localisation(-heat, untouched) == 0.0


def test_identical_cells_are_no_rivals():
    same = torch.ones(3, 1, 6, 6)
    assert faithfulness(same, same, np.ones((3, 9), dtype=bool)) is None


def test_other_images_are_refused(splits, reader):
    plain = dataclasses.replace(splits, test=dataclasses.replace(splits.test, cells=None))
    with pytest.raises(DataError, match="DigitAnatomy"):
        measure_digits(Copier(), plain, reader=reader)
