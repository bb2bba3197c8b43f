import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from squid.errors import ConfigError, DataError
from squid.evaluation.metrics import (
    BEST_ACCURACY,
    MEASURES,
    Metrics,
    auc,
    best_accuracy_threshold,
    evaluate,
    healthy,
    per_group_auc,
)


def _sample(n=300, *, shift=1.0, seed=0, decimals=1):
    """Scores rounded so that many of them tie."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    return np.round(rng.normal(size=n) + shift * labels, decimals), labels


def test_the_threshold_of_best_accuracy_equals_the_authors(shared):
    golden = np.load(shared("golden", "score_metrics.npz"))
    scores = -golden["raw"]
    metrics = evaluate(scores, golden["labels"], threshold=BEST_ACCURACY)
    threshold = metrics.threshold.value
    standardised = 1 / (1 + np.exp(-(threshold + golden["mu"]) / golden["sigma"]))
    assert standardised == pytest.approx(float(golden["threshold"]), rel=1e-6)
    expected = {"auc": "auc", "accuracy": "acc", "f1": "f1", "sensitivity": "recall"}
    expected |= {"precision": "precision", "specificity": "specificity"}
    for ours, theirs in expected.items():
        assert 100 * getattr(metrics, ours).value == pytest.approx(float(golden[theirs]), abs=1e-9)


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_values_equal_scikit_learn(decimals):
    scores, labels = _sample(decimals=decimals)
    metrics = evaluate(scores, labels, threshold=healthy(0.7), resamples=10)
    called = scores >= 0.7
    expected = {
        "auc": sk.roc_auc_score(labels, scores),
        "average_precision": sk.average_precision_score(labels, scores),
        "accuracy": sk.accuracy_score(labels, called),
        "f1": sk.f1_score(labels, called),
        "sensitivity": sk.recall_score(labels, called),
        "specificity": sk.recall_score(labels, called, pos_label=0),
        "precision": sk.precision_score(labels, called),
    }
    assert {name: getattr(metrics, name).value for name in MEASURES} == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_best_accuracy_is_the_first_best_from_above(pairs):
    scores, labels = np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs], int)
    if len(set(labels)) < 2:
        return
    threshold = best_accuracy_threshold(scores, labels)
    candidates = [np.nextafter(scores.max(), np.inf), *sorted(set(scores), reverse=True)]
    right = [((scores >= t) == labels).sum() for t in candidates]
    assert threshold == candidates[int(np.argmax(right))]


def test_intervals_hold_the_value_and_shrink_with_more_images():
    few = evaluate(*_sample(100), threshold=healthy(0.5))
    many = evaluate(*_sample(3000), threshold=healthy(0.5))
    for name in MEASURES:
        small, large = getattr(few, name), getattr(many, name)
        assert small.low <= small.value <= small.high
        assert 0.1 < (large.high - large.low) / (small.high - small.low) < 0.35  # about 1/sqrt(30)


def test_auc_interval_agrees_with_a_plain_bootstrap():
    scores, labels = _sample(150)
    rng = np.random.default_rng(1)
    classes = [np.flatnonzero(labels == label) for label in (0, 1)]
    drawn = []
    for _ in range(1000):
        index = np.concatenate([rng.choice(members, len(members)) for members in classes])
        drawn.append(sk.roc_auc_score(labels[index], scores[index]))
    estimate = evaluate(scores, labels, threshold=BEST_ACCURACY).auc
    expected = np.quantile(drawn, [0.025, 0.975]).tolist()
    assert [estimate.low, estimate.high] == pytest.approx(expected, abs=0.015)


def test_blocks_of_resamples_change_nothing_but_memory(monkeypatch):
    scores, labels = _sample(200)
    monkeypatch.setattr("squid.evaluation.metrics._BLOCK", 1000)
    metrics = evaluate(scores, labels, threshold=BEST_ACCURACY, resamples=300)
    assert metrics.resamples == 300
    assert metrics.auc.low < metrics.auc.value < metrics.auc.high


def test_same_seed_same_intervals_and_json_round_trip():
    scores, labels = _sample()
    first = evaluate(scores, labels, threshold=BEST_ACCURACY, seed=3, resamples=50)
    assert first == evaluate(scores, labels, threshold=BEST_ACCURACY, seed=3, resamples=50)
    assert first != evaluate(scores, labels, threshold=BEST_ACCURACY, seed=4, resamples=50)
    assert (
        Metrics.model_validate(
            json.loads(json.dumps(first.model_dump(mode="json"), allow_nan=False))
        )
        == first
    )


def test_the_kind_is_named_and_a_given_threshold_is_kept():
    scores, labels = _sample()
    kept = evaluate(scores, labels, threshold=healthy(0.25, rate=0.05), resamples=5).threshold
    assert (kept.kind, kept.value, kept.rate) == ("healthy", 0.25, 0.05)
    found = evaluate(scores, labels, threshold=BEST_ACCURACY, resamples=5).threshold
    assert (found.kind, found.value) == ("best_accuracy", best_accuracy_threshold(scores, labels))
    with pytest.raises(ConfigError, match="held-out healthy"):
        evaluate(scores, labels, threshold=BEST_ACCURACY.model_copy(update={"kind": "healthy"}))


def test_calling_nothing_anomalous_is_a_finite_threshold():
    metrics = evaluate([3.0, 2.0, 1.0], [0, 0, 1], threshold=BEST_ACCURACY, resamples=5)
    assert np.isfinite(metrics.threshold.value)
    assert (metrics.sensitivity.value, metrics.precision.value, metrics.f1.value) == (0, 0, 0)


def test_groups_are_measured_against_all_normals():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 0.5])
    labels = np.array([0, 0, 0, 1, 1, 1])
    groups = ["rare", "", "", "high|both", "high|both", "low|both"]
    result = per_group_auc(scores, labels, groups, minimum=1, resamples=20)
    assert {name: (group.auc.value, group.count) for name, group in result.items()} == {
        "high": (1.0, 2),
        "low": (pytest.approx(1 / 3), 1),
        "both": (pytest.approx(7 / 9), 3),
    }
    assert set(per_group_auc(scores, labels, groups, minimum=2, resamples=20)) == {"high", "both"}
    with pytest.raises(DataError, match="5 groups"):
        per_group_auc(scores, labels, groups[1:])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([1.0, 2.0], [0, 0], "All 2 images are normal"),
        ([1.0, 2.0], [1, 1], "All 2 images are anomalous"),
        ([1.0, np.nan], [0, 1], "1 of 2 scores"),
        ([1.0, 2.0, 3.0], [0, 1], "one length"),
        ([1.0, 2.0], [0, 2], "0 .normal. or 1"),
    ],
)
def test_what_cannot_be_measured_is_said(scores, labels, message):
    with pytest.raises(DataError, match=message):
        auc(scores, labels)
