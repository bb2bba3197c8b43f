"""benchmarks/reread.py: the studies it makes of kept results."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squid.data.digitanatomy import DigitAnatomy
from squid.data.pixels import to_unit
from squid.evaluation.metrics import BEST_ACCURACY, evaluate, healthy
from squid.evaluation.record import (
    Cost,
    Evaluation,
    Evaluations,
    Provenance,
    Result,
    TestImages,
)
from squid.evaluation.trivial import ACQUISITION, CONTENT, minus_sharpness
from squid.methods.padim import PadimConfig
from squid.recipe import Recipe, read_recipe

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "studies"
PROVENANCE = {"command", "date", "commit", "torch", "device"}
RIGHT, WRONG = [0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]
LABELS = (0, 0, 1, 1)

Scores = Mapping[str, Sequence[float]]
Reread = Callable[..., dict[str, Any]]


@pytest.fixture
def reread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reread:
    """Calls the script with its arguments; the only study that it writes."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.chdir(ROOT)
    main = import_module("reread").main

    def call(*arguments: object) -> dict[str, Any]:
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["reread.py", *map(str, arguments), "--out", str(out)])
        main()
        (study,) = out.iterdir()
        return {"file": study.name, **json.loads(study.read_text())}

    return call


def write_results(
    folder: Path, *scores: Scores, row: str = "up", prints: str = "aaaaaaaa"
) -> list[Path]:
    """A result file for each training, by the scores of its selections."""
    files = []
    for seed, by_selection in enumerate(scores):
        result = Result(
            section="made",
            row=row,
            title=row,
            recipe=Recipe(data=DigitAnatomy(), method=PadimConfig(), seed=seed),
            provenance=Provenance(command="", version="", commit="c0", torch="", device=""),
            cost=Cost(
                steps=0, published_steps=0, training_seconds=0, scoring_seconds=0, total_seconds=0,
                parameters=0, run_bytes=0, peak_bytes=0,
            ),
            evaluations=Evaluations(
                method="padim",
                data="digitanatomy",
                seed=seed,
                fingerprint=prints[seed],
                images=_images(len(next(iter(by_selection.values())))),
                by_selection={name: _evaluation(name, one) for name, one in by_selection.items()},
            ),
        )  # fmt: skip
        files.append(folder / f"{row}-{seed}.json")
        files[-1].write_text(result.model_dump_json())
    return files


def _images(count: int) -> TestImages:
    """As many normal as anomalous ones."""
    labels = tuple(sorted(LABELS * (count // len(LABELS))))
    names = tuple(map(str, range(count)))
    return TestImages(name=names, label=labels, finding=("",) * count)


def _evaluation(selection: Any, scores: Sequence[float]) -> Evaluation:
    labels = _images(len(scores)).labels
    metrics = {
        threshold.kind: evaluate(scores, labels, threshold=threshold, resamples=10)
        for threshold in (healthy(1.5), BEST_ACCURACY)
    }
    return Evaluation(selection=selection, metrics=metrics, scores=tuple(scores))


def test_a_study_with_the_same_numbers_is_not_written_again(reread: Reread, tmp_path: Path) -> None:
    """So that its provenance stays that of the first reading."""
    files = write_results(tmp_path, {"final": RIGHT}, {"final": WRONG}, {"final": WRONG})
    reread("agreement", *files[:2])
    path = tmp_path / "out" / "agreement-made-up.json"
    study = json.loads(path.read_text()) | {"date": "long ago", "commit": "an early one"}
    path.write_text(json.dumps(study))
    assert reread("agreement", *files[:2])["date"] == "long ago"
    assert reread("agreement", *files)["commit"] != "an early one"


# Agreement


def test_agreement_is_the_rank_correlation_of_trainings(reread: Reread, tmp_path: Path) -> None:
    files = write_results(tmp_path, {"final": RIGHT}, {"final": RIGHT}, {"final": WRONG})
    study = reread("agreement", *files)
    assert study["file"] == "agreement-made-up.json"
    assert study["seeds"] == [0, 1, 2]
    assert study["final"]["all"] == pytest.approx((1 - 1 - 1) / 3)
    assert study["final"]["healthy"] == pytest.approx((1 - 1 - 1) / 3)
    assert study["final"]["means of two"] is None, "two pairs of three trainings share one"


def test_means_of_two_trainings_agree_better_than_single_ones(
    reread: Reread, tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).normal(scale=20, size=(6, 40))
    scores = [{"final": (np.arange(40) + one).tolist()} for one in noise]
    found = reread("agreement", *write_results(tmp_path, *scores))["final"]
    assert found["all"] < found["means of two"] < 1


# Ensembles


def test_folders_that_are_wrong_in_different_places_are_right_together(
    reread: Reread, tmp_path: Path
) -> None:
    one, other = {"final": [3.0, 0.0, 2.0, 2.0]}, {"final": [0.0, 3.0, 2.0, 2.0]}
    files = write_results(tmp_path, one, other)
    study = reread("ensembles", *files)
    assert study["file"] == "ensembles-made-up-2.json"
    assert study["final"]["auc of each"] == [100.0]
    assert study["commits"] == ["c0", "c0"]
    assert "range" not in study


def test_single_folders_are_ensembles_of_one(reread: Reread, tmp_path: Path) -> None:
    one, other = {"final": [3.0, 0.0, 2.0, 2.0]}, {"final": [0.0, 3.0, 2.0, 2.0]}
    files = write_results(tmp_path, one, other)
    assert reread("ensembles", *files, "--folders", 1)["final"]["auc of each"] == [50.0, 50.0]


def test_ensembles_share_no_folder_and_one_too_many_is_left_out(
    reread: Reread, tmp_path: Path
) -> None:
    right, wrong = {"final": RIGHT}, {"final": WRONG}
    found = reread("ensembles", *write_results(tmp_path, right, right, wrong, wrong, right))
    assert found["final"]["auc of each"] == [100.0, 0.0]
    assert found["final"]["ensembles"]["auc"]["mean"] == 50.0
    assert found["final"]["all"]["auc"] == 100.0


def test_two_rows_are_averaged_seed_by_seed(reread: Reread, tmp_path: Path) -> None:
    """Each row has one pair in the wrong order, which the other makes good."""
    up = [{"final": [0.0, 4.0, 3.0, 5.0]}] * 2
    down = [{"final": [3.0, 0.0, 3.0, 3.0]}] * 2
    files = write_results(tmp_path, *up), write_results(tmp_path, *down, row="down")
    study = reread("rows", *files[0], "--beside", *files[1])
    assert study["file"] == "rows-made-up-down.json"
    assert study["seeds"] == [0, 1]
    assert study["auc"] == {"mean": 100.0, "std": 0.0}


def test_rows_without_a_common_split_are_not_averaged(
    reread: Reread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {"final": RIGHT}
    files = write_results(tmp_path, right), write_results(tmp_path, right, row="b", prints="b")
    with pytest.raises(SystemExit):
        reread("rows", *files[0], "--beside", *files[1])
    assert "different splits" in capsys.readouterr().err


def test_a_selection_that_one_training_lacks_is_left_out(reread: Reread, tmp_path: Path) -> None:
    files = write_results(tmp_path, {"final": RIGHT, "snapshot_mean": RIGHT}, {"final": RIGHT})
    assert "snapshot_mean" not in reread("ensembles", *files)


def test_stops_have_a_range_over_epochs(reread: Reread, tmp_path: Path) -> None:
    moves = {"240": [0.0, 0.0, 1.0, 1.0], "300": [2.0, 0.0, 1.0, 1.0]}
    stays = {"240": [0.0, 0.0, 1.0, 1.0], "300": [0.0, 0.0, 1.0, 1.0]}
    files = []
    for seed, scores in enumerate((moves, stays)):
        stops = {"section": "made", "row": "stops", "seed": seed, "commit": "c0"}
        stops |= {"fingerprint": "a", "scores": {"label": LABELS, **scores}}
        files.append(tmp_path / f"stops-{seed}.json")
        files[-1].write_text(json.dumps(stops))
    found = reread("ensembles", *files, "--folders", 1)["range"]
    assert found["each"] == [50.0, 0.0]
    assert found["mean"] == 25.0


# Sharpness


def test_sharpness_correlates_scores_with_blur_and_measures_trivial_scores(
    reread: Reread, tmp_path: Path
) -> None:
    recipe = tmp_path / "digits.toml"
    recipe.write_text(
        '[data]\nname = "digitanatomy"\ntrain = 8\nvalidation = 8\ntest = 8\n'
        '[method]\nname = "auto_encoder"\nsize = 48\n'
    )
    splits = read_recipe(recipe).data.load(48)
    pixels = to_unit(splits.test.pixels).flatten(1).numpy()
    (file,) = write_results(tmp_path, {"final": minus_sharpness(pixels, pixels).tolist()})
    result = json.loads(file.read_text())
    result["evaluations"]["fingerprint"] = splits.fingerprint
    result["evaluations"]["images"]["label"] = splits.test.labels.tolist()
    file.write_text(json.dumps(result))
    study = reread("sharpness", file, "--recipe", recipe)
    groups = study["correlation with minus sharpness"]["up, seed 0"]["final"]
    assert groups == pytest.approx({"all": 1.0, "healthy": 1.0, "anomalous": 1.0})
    unchanged = study["validation AUC"]["as they are"]
    assert set(unchanged) == set(ACQUISITION | CONTENT)
    assert study["validation AUC"]["blurred, sigma 2"] != unchanged


# Site calibration


def test_half_of_a_sites_healthy_images_gives_its_false_alarms(
    reread: Reread, tmp_path: Path
) -> None:
    """Here all healthy scores lie above the threshold that the validation images gave, 1.5."""
    shifted = [*np.linspace(2, 3, 400), *np.linspace(4, 5, 400)]
    study = reread("site", *write_results(tmp_path, {"final": shifted}, {"final": shifted}))
    assert study["file"] == "site-calibration.json"
    assert study["rate"] == 0.1
    assert study["validation images"]["false_alarms"] == {"mean": 100.0, "std": 0.0}
    at_site = study["half of the site's"]
    assert at_site["false_alarms"]["mean"] == pytest.approx(10, abs=1)
    assert at_site["found"] == {"mean": 100.0, "std": 0.0}


# All commands


@pytest.mark.parametrize(
    ("arguments", "prints", "sentence"),
    [
        (["ensembles", "--folders", "3"], "aa", "3 at a time cannot be taken of 2 results"),
        (["ensembles", "--folders", "0"], "aa", "0 at a time"),
        (["ensembles"], "ab", "different rows or splits"),
        (["agreement"], "ab", "different rows or splits"),
        (["site"], "ab", "different rows or splits"),
    ],
)
def test_a_mistake_is_a_sentence(
    reread: Reread,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    prints: str,
    sentence: str,
) -> None:
    files = write_results(tmp_path, {"final": RIGHT}, {"final": RIGHT}, prints=prints)
    with pytest.raises(SystemExit):
        reread(arguments[0], *files, *arguments[1:])
    assert sentence in capsys.readouterr().err


def test_one_result_does_not_agree(
    reread: Reread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        reread("agreement", *write_results(tmp_path, {"final": RIGHT}))
    assert "two results or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "agreement-zhanglab-ours",
        "agreement-zhanglab-reference",
        "ensembles-zhanglab-ours-2",
        "ensembles-zhanglab-stops-5",
        "site-calibration",
    ],
)
def test_kept_studies_are_what_their_commands_give(reread: Reread, name: str) -> None:
    kept = json.loads((KEPT / f"{name}.json").read_text())
    made = reread(*kept["command"].split()[2:])
    assert made.pop("file") == f"{name}.json"
    assert set(kept) == set(made)
    for key in set(kept) - PROVENANCE:
        _assert_close(made[key], kept[key], key)


def _assert_close(made: Any, kept: Any, place: str) -> None:
    if isinstance(kept, dict):
        assert set(made) == set(kept), place
        for key in kept:
            _assert_close(made[key], kept[key], f"{place}.{key}")
    else:
        assert made == (pytest.approx(kept) if isinstance(kept, float) else kept), place
