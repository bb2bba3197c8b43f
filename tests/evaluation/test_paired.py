"""The paired test of two sets of scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from squid.cli import app
from squid.errors import DataError, RunError
from squid.evaluation.confounds import covariate
from squid.evaluation.evaluate import evaluate_run
from squid.evaluation.metrics import auc, evaluate, healthy
from squid.evaluation.paired import compare, compare_runs, difference
from squid.evaluation.record import Evaluation, Evaluations, TestImages
from squid.run import Run

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1], [80, 60])
EVERYWHERE = [""] * len(LABELS)
GOOD = LABELS + RNG.normal(size=140)
WORSE = GOOD + RNG.normal(size=140)
"""The same scores with more noise: both see the same easy and hard images."""
UNRELATED = LABELS + RNG.normal(size=140)


def record(scores: np.ndarray, order: np.ndarray | None = None, **more: object) -> Evaluations:
    order = np.arange(len(scores)) if order is None else order
    labels = LABELS[order]
    threshold = healthy(0.0)
    metrics = {"healthy": evaluate(scores[order], labels, threshold=threshold, resamples=5)}
    images = TestImages(
        name=tuple(f"image {i}" for i in order),
        label=tuple(labels.tolist()),
        finding=("",) * len(order),
        strata={"half": tuple("ab"[i % 2] for i in order)},
    )
    final = Evaluation(selection="final", metrics=metrics, scores=tuple(scores[order].tolist()))
    values = {"method": "made", "data": "up", "seed": 0, "fingerprint": "f", "images": images}
    return Evaluations(**{**values, "by_selection": {"final": final}, **more})  # type: ignore[arg-type]


def test_both_aucs_and_their_difference() -> None:
    found = difference(GOOD, WORSE, LABELS, EVERYWHERE)
    assert found is not None
    assert (found.first, found.second) == pytest.approx((auc(GOOD, LABELS), auc(WORSE, LABELS)))
    assert found.difference.value == pytest.approx(found.first - found.second)


def test_the_standard_error_is_that_of_resampled_images() -> None:
    """A paired bootstrap, which knows nothing of DeLong's formula, has the same spread."""
    found = difference(GOOD, WORSE, LABELS, EVERYWHERE)
    assert found is not None
    rng, samples = np.random.default_rng(1), []
    for _ in range(1500):
        drawn = np.concatenate([rng.integers(0, 80, 80), rng.integers(80, 140, 60)])
        samples.append(auc(GOOD[drawn], LABELS[drawn]) - auc(WORSE[drawn], LABELS[drawn]))
    width = found.difference.high - found.difference.low
    assert width == pytest.approx(2 * 1.96 * np.std(samples), rel=0.08)


def test_a_pair_is_known_better_than_two_strangers() -> None:
    paired = difference(GOOD, WORSE, LABELS, EVERYWHERE)
    strangers = difference(GOOD, UNRELATED, LABELS, EVERYWHERE)
    assert paired is not None
    assert strangers is not None
    widths = [one.difference.high - one.difference.low for one in (paired, strangers)]
    assert widths[0] < 0.8 * widths[1]


def test_p_is_uniform_where_there_is_no_difference_and_small_where_there_is() -> None:
    rng, found = np.random.default_rng(2), []
    for _ in range(400):
        shared = LABELS + rng.normal(size=140)
        pair = [shared + 0.7 * rng.normal(size=140) for _ in range(2)]
        one = difference(*pair, LABELS, EVERYWHERE)
        assert one is not None
        found.append(one.p)
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.03)
    clear = difference(10.0 * LABELS + GOOD, RNG.normal(size=140), LABELS, EVERYWHERE)
    assert clear is not None
    assert clear.p < 1e-6


def test_scores_that_rank_alike_do_not_differ() -> None:
    same = difference(GOOD, np.exp(GOOD), LABELS, EVERYWHERE)
    assert same is not None
    assert (same.difference.value, same.difference.low, same.p) == (0.0, 0.0, 1.0)


def test_ties_count_half() -> None:
    found = difference(np.zeros(140), GOOD, LABELS, EVERYWHERE)
    assert found is not None
    assert found.first == 0.5


def test_within_strata_it_is_the_difference_of_adjusted_aucs() -> None:
    groups = ["a" if i % 3 else "b" for i in range(140)]
    found = difference(GOOD, WORSE, LABELS, groups, least=10)
    assert found is not None
    for value, scores in ((found.first, GOOD), (found.second, WORSE)):
        adjusted = covariate(scores, LABELS, groups, resamples=5).adjusted
        assert adjusted is not None
        assert value == pytest.approx(adjusted.value)
    assert difference(GOOD, WORSE, LABELS, [str(i) for i in range(140)], least=10) is None


def test_several_trainings_are_compared_by_their_mean_aucs() -> None:
    """The bootstrap draws images for all trainings at once."""
    rng = np.random.default_rng(4)
    first, second = (one + 0.5 * rng.normal(size=(s, 140)) for one, s in ((GOOD, 4), (WORSE, 2)))
    found = difference(first, second, LABELS, EVERYWHERE)
    assert found is not None
    assert found.first == pytest.approx(np.mean([auc(one, LABELS) for one in first]))
    assert found.second == pytest.approx(np.mean([auc(one, LABELS) for one in second]))
    samples = []
    for _ in range(600):
        drawn = np.concatenate([rng.integers(0, 80, 80), rng.integers(80, 140, 60)])
        means = [np.mean([auc(s[drawn], LABELS[drawn]) for s in row]) for row in (first, second)]
        samples.append(means[0] - means[1])
    width = found.difference.high - found.difference.low
    assert width == pytest.approx(2 * 1.96 * np.std(samples), rel=0.1)
    assert difference(first[:1], second[:1], LABELS, EVERYWHERE) == difference(
        first[0], second[0], LABELS, EVERYWHERE
    )


def test_images_are_matched_by_name_and_others_are_refused() -> None:
    order = np.random.default_rng(3).permutation(140)
    straight, mixed = (compare(record(GOOD), record(WORSE, o), "final") for o in (None, order))
    assert mixed == straight
    assert straight.within["half"].difference.value != straight.pooled.difference.value
    fewer = record(GOOD, np.arange(139))
    with pytest.raises(DataError, match="different images"):
        compare(record(GOOD), fewer, "final")
    with pytest.raises(DataError, match="no scores of the selection 'best_epoch'"):
        compare(record(GOOD), record(WORSE), "best_epoch")


def test_runs_on_the_command_line(tiny_run: Path, tmp_path: Path) -> None:
    import shutil

    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    with pytest.raises(RunError, match="not evaluated yet; run: squid evaluate"):
        compare_runs(run, run)
    evaluations = evaluate_run(run, device="cpu")
    assert len(evaluations.images.strata["sharpness"]) == 16
    made = CliRunner().invoke(app, ["compare", str(run), str(run), "--format", "json"])
    assert made.exit_code == 0, made.output
    values = json.loads(made.output)
    assert values["pooled"]["first"] == pytest.approx(evaluations.final.auc)
    assert values["pooled"]["p"] == 1.0
    shown = CliRunner().invoke(app, ["compare", str(run), str(run)])
    assert "all images" in shown.output
    table = CliRunner().invoke(app, ["compare", str(run), str(run), "--format", "csv"])
    assert table.output.splitlines()[0] == "images,first,second,difference,low,high,p"
    kept = Run(run)
    assert (kept.path / "metrics.json").is_file()
