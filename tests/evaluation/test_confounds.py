"""What a score follows: strata, the adjusted AUC, rank correlations."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from squid.data.image_set import ImageSet, Splits
from squid.evaluation.confounds import (
    Confounds,
    confounds,
    covariate,
    deciles,
    leading,
    strata,
    what_it_follows,
)


def test_a_score_of_the_view_has_no_adjusted_auc() -> None:
    """Nine in ten anomalous images have the other view, which is all that the score knows."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 200)
    view = np.where(rng.random(400) < np.where(labels == 1, 0.9, 0.1), "AP", "PA")
    scores = (view == "AP") + 1e-3 * rng.random(400)
    found = covariate(scores, labels, view.tolist(), resamples=50)
    assert found.adjusted is not None
    assert abs(found.adjusted.value - 0.5) < 0.12
    assert found.adjusted.low < 0.5 < found.adjusted.high + 0.1


def test_the_adjusted_auc_weighs_strata_by_their_anomalous_images() -> None:
    labels = np.array([0] * 10 + [1] * 30 + [0] * 10 + [1] * 10)
    groups = ["a"] * 40 + ["b"] * 20
    scores = np.concatenate([np.zeros(10), np.ones(30), np.ones(10), np.zeros(10)])
    found = covariate(scores, labels, groups, resamples=5)
    assert [one.auc and one.auc.value for one in found.strata] == [1.0, 0.0]
    assert found.adjusted is not None
    assert found.adjusted.value == pytest.approx(30 / 40)


def test_small_strata_have_no_auc() -> None:
    labels = np.array([0] * 20 + [1] * 3)
    found = covariate(np.arange(23.0), labels, ["a"] * 23, resamples=5)
    assert found.strata[0].auc is None
    assert found.adjusted is None


def test_what_has_no_healthy_counterpart_is_counted_and_named() -> None:
    labels = np.array([0] * 20 + [1] * 15 + [0] * 2 + [1] * 30)
    groups = ["sharp"] * 35 + ["blurred"] * 32
    found = covariate(np.arange(67.0), labels, groups, resamples=5)
    assert found.anomalous == (15, 45)
    confounded = Confounds(covariates={"sharpness": found}, correlations={})
    assert "15 of 45 anomalous images" in what_it_follows(confounded, 0.9)


def test_all_anomalous_images_need_no_words() -> None:
    labels = np.array([0] * 20 + [1] * 15)
    found = covariate(np.arange(35.0), labels, ["a"] * 35, resamples=5)
    confounded = Confounds(covariates={"sharpness": found}, correlations={})
    assert "anomalous images" not in what_it_follows(confounded, 0.9)


def test_tables_adjust_for_the_view_before_sharpness() -> None:
    assert leading({"sharpness": 1, "view": 2}) == 2
    assert leading({"sharpness": 1, "age": 3}) == 1
    assert leading({"age": 3}) is None


def test_deciles_hold_equally_many() -> None:
    groups = deciles(np.random.default_rng(0).random(100))
    assert sorted(set(groups)) == [f"{i:02d}" for i in range(1, 11)]
    assert all(groups.count(name) == 10 for name in set(groups))


@pytest.fixture
def splits() -> Splits:
    """Healthy images are sharp, the others blurred; half of each are of either view."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (120, 16, 16)).astype(np.float64)
    strength = np.linspace(0.2, 1.0, 120)[:, None, None]
    pixels = torch.from_numpy((128 + (noise - 128) * strength).astype(np.uint8))[:, None]
    labels = np.array([1] * 40 + [0] * 80)
    view = tuple("PA" if i % 2 else "AP" for i in range(120))
    images = ImageSet(
        pixels, labels, tuple(map(str, range(120))), columns={"view": view, "age": ("61",) * 120}
    )
    test = images.select(np.arange(120) % 3 > 0)
    return Splits(images.normals, images, test, official=False)


def test_a_score_of_sharpness_is_called_so(splits: Splits) -> None:
    scores = -splits.test.pixels.double().std((1, 2, 3)).numpy()
    found = confounds(scores, splits, resamples=20)
    assert set(found.covariates) == {"sharpness", "view"}, "all are of one age"
    assert found.correlations["minus sharpness"].healthy > 0.8
    text = what_it_follows(found, 0.9)
    assert text.startswith("AUC 90.0 over all test images")
    assert "minus sharpness (+" in text


def test_a_score_of_chance_follows_nothing(splits: Splits) -> None:
    scores = np.random.default_rng(1).random(len(splits.test))
    assert "it follows no acquisition score" in what_it_follows(
        confounds(scores, splits, resamples=20), 0.5
    )


def test_a_label_of_disease_is_no_covariate(splits: Splits) -> None:
    """Within RSNA's classes, which are a second reading of the disease, nothing is left to find."""
    classes = tuple("Lung Opacity" if label else "Normal" for label in splits.test.labels)
    columns = {**splits.test.columns, "rsna_class": classes, "sex": ("F",) * 40 + ("M",) * 40}
    known = replace(splits.test, columns=columns)
    assert set(strata(known)) == {"sharpness", "view", "sex"}


def test_every_column_of_few_values_has_strata_and_numbers_are_put_into_fifths(
    splits: Splits,
) -> None:
    count = len(splits.test)
    columns = {
        "machine": ("a", "b", "", "a") * (count // 4),
        "dose": tuple(str(0.1 * i) if i else "" for i in range(count)),
        "accession": tuple(f"number {i}" for i in range(count)),
        "site": ("one",) * count,
    }
    found = strata(replace(splits.test, columns=columns))
    assert set(found) == {"sharpness", "machine", "dose"}
    assert set(found["machine"]) == {"a", "b", "?"}
    sizes = Counter(found["dose"])
    assert sizes.pop("?") == 1
    assert set(sizes) == {f"fifth {i}" for i in range(1, 6)}
    assert max(sizes.values()) - min(sizes.values()) <= 1
    # In the order of the numbers.
    assert list(dict.fromkeys(found["dose"][1:])) == sorted(sizes)
