"""Benchmarks: plans, running and resuming jobs, and the tables made of their results."""

import csv
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from squid.benchmark import plan_benchmark, table_of_results
from squid.benchmark.figures import SHEET_ROWS
from squid.benchmark.job import backbone, planned_steps, published_steps, run_job
from squid.benchmark.store import RESULT, finished, read_result
from squid.benchmark.summary import Line, Spread, published, summarise_results
from squid.benchmark.timing import expected_seconds
from squid.cli import app, main
from squid.errors import ConfigError, DataError, RunError
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.metrics import BEST_ACCURACY, auc, evaluate, healthy
from squid.evaluation.record import Evaluation
from squid.evaluation.trivial import ACQUISITION, CONTENT
from squid.methods.base import Method
from squid.methods.cutpaste import CutPasteConfig
from squid.methods.f_anogan import FAnoganConfig
from squid.methods.memae import MemAEConfig
from squid.methods.padim import PadimConfig
from squid.methods.squid.config import SquidConfig
from squid.recipe import read_recipe
from squid.run import Run
from squid.train import Monitor, State

ROOT = Path(__file__).resolve().parents[2]
TINY = """
title = "Tiny"
seeds = 2

[train]
augment = { shift = 0.0, scale = [1.0, 1.0] }

[rows.auto_encoder]
method = { channels = [4, 8], hidden = 16, latent = 4, epochs = 1, batch_size = 999 }

[rows.memae]
method = { channels = [8, 8], slots = 10, threshold = 0.1, epochs = 4 }
train = { snapshot_every = 1 }

[rows.squid]
method = { grid = 3, width = 4, depth = 3, merge_level = 1, decoder_memory = "patch", epochs = 1 }

[sections.digits]
method = { size = 48 }
data = { name = "digitanatomy", train = 32, validation = 10, test = 12 }

[sections.digits.change.squid]
method = { slots = 10, matrix_slots = 10, discriminator_width = 4, heads = 2, grid = 3, k = 5 }

[sections.elsewhere]
rows = ["memae"]
data = { name = "digitanatomy", train = 99 }
method = { size = 48, slots = 20 }
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(TINY)
    return path


# Plans


def test_what_is_nearer_wins(recipe: Path, tmp_path: Path) -> None:
    plan = plan_benchmark(recipe, tmp_path)
    assert plan.sections == ("digits", "elsewhere")
    memae = {job.section: job.recipe for job in plan.jobs if job.row == "memae"}
    assert memae["digits"].method.slots == 10  # type: ignore[attr-defined]
    assert memae["elsewhere"].method.slots == 20  # type: ignore[attr-defined]
    assert memae["digits"].train.snapshot_every == 1
    assert memae["digits"].train.augment is not None
    assert memae["digits"].train.augment.shift == 0
    assert {job.recipe.seed for job in plan.jobs} == {0, 1}
    assert plan.jobs[0].folder == tmp_path / "digits" / "auto_encoder" / "seed-0"


def test_rows_sections_and_seeds_can_be_chosen(recipe: Path, tmp_path: Path) -> None:
    plan = plan_benchmark(
        recipe, tmp_path, rows=["memae"], sections=["digits"], seeds=1, first_seed=7,
        settings=["method.epochs=3"],
    )  # fmt: skip
    assert [job.name for job in plan.jobs] == ["digits/memae/seed-7"]
    assert plan.jobs[0].recipe.method.epochs == 3  # type: ignore[attr-defined]
    assert plan.jobs[0].command.endswith(
        "--set method.epochs=3 --sections digits --rows memae --seeds 1 --first-seed 7"
    )


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"rows": ["memea"]}, "no row 'memea'; did you mean 'memae'"),
        ({"sections": ["digit"]}, "no section 'digit'; did you mean 'digits'"),
        ({"sections": ["elsewhere"], "rows": ["squid"]}, "No section"),
        ({"settings": ["method.nothing=1"]}, "digits/auto_encoder: method: unknown key"),
    ],
)
def test_wrong_choices_are_refused(
    recipe: Path, tmp_path: Path, choice: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_benchmark(recipe, tmp_path, **choice)  # type: ignore[arg-type]


def test_the_papers_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of the paper's table and three of our own, and the paper's seven on CheXpert."""
    plan = plan_benchmark(ROOT / "recipes" / "benchmark.toml", tmp_path, seeds=1)
    rows = {section: [job.row for job in plan.of(section)] for section in plan.sections}
    ours = [row for row in rows["zhanglab"] if not published("zhanglab", row)]
    assert ours == ["ae_u", "synthetic_lesions", "fusion"]
    assert len(rows["zhanglab"]) == 15 + len(ours)
    assert rows["nih"] == rows["zhanglab"]
    # RSNA also has the form of SQUID that was better on its validation images.
    assert rows["rsna_pa"] == rows["rsna_ap"]
    assert [row for row in rows["rsna_pa"] if row != "squid_lesions"] == rows["zhanglab"]
    assert all(published("chexpert", row) for row in rows["chexpert"])
    assert len(rows["chexpert"]) == 7
    assert set(SHEET_ROWS) <= set(rows["digitanatomy"]), "the rows of the sheet"


def test_a_row_may_be_a_recipe(tmp_path: Path) -> None:
    plan = plan_benchmark(
        ROOT / "recipes" / "accuracy.toml", tmp_path, sections=["zhanglab"], seeds=1
    )
    reference, longer, ours, one, long = (job.recipe for job in plan.jobs)
    released = read_recipe(ROOT / "recipes" / "zhanglab-reference.toml")
    assert reference.method == released.method
    assert reference.calibration == released.calibration
    assert longer.method == released.method.model_copy(update={"epochs": 1000})
    assert ours.method == read_recipe(ROOT / "recipes" / "zhanglab.toml").method
    assert one.method == ours.method.model_copy(update={"members": 1})
    assert long.method == one.method.model_copy(update={"epochs": 1000, "target_updates": 0})
    for job in plan.jobs:
        assert published("zhanglab", job.row) == published("zhanglab", "squid")


def test_a_section_may_change_a_row_to_a_recipe(tmp_path: Path) -> None:
    path = ROOT / "recipes" / "benchmark.toml"
    plan = plan_benchmark(path, tmp_path, sections=["digitanatomy"], rows=["squid"], seeds=1)
    alone = read_recipe(ROOT / "recipes" / "digitanatomy.toml")
    assert plan.jobs[0].recipe.method == alone.method
    assert plan.jobs[0].recipe.train.augment == alone.train.augment


# Cost


def test_steps_run_and_published() -> None:
    assert planned_steps(MemAEConfig(size=32, epochs=3), images=100) == 3 * 7
    assert published_steps(MemAEConfig(size=32, epochs=3), images=100) == 100 * 7
    short = FAnoganConfig(size=32, width=4, steps=20, encoder_steps=10)
    assert planned_steps(short, images=100) == 30
    assert published_steps(short, images=100) == 150_000
    assert published_steps(CutPasteConfig(width=4, steps=5), images=9) == 65_536
    assert published_steps(PadimConfig(size=32), images=100) == 0
    distilled = SquidConfig(epochs=3, epoch_steps=5, target_updates=1, score_distillation_epochs=2)
    assert planned_steps(distilled, images=160) == 3 * 5 + 2 * 5


def test_a_random_backbone_is_called_so() -> None:
    assert backbone(PadimConfig()) == "vgg16, random backbone"
    trained = PadimConfig.model_validate({"backbone": {"weights": "vgg16.safetensors"}})
    assert backbone(trained) == "vgg16, pretrained"
    assert backbone(MemAEConfig()) is None


# Running


@pytest.fixture(scope="session")
def ran(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both seeds of all rows of one section by the command line; one row must fail."""
    out = tmp_path_factory.mktemp("runs") / "bench"
    result = CliRunner().invoke(
        app, command(recipe, out, "--parallel", "2", "--results", f"{out}-kept")
    )
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1, result.output
    return out


def command(recipe: Path, out: Path, *options: str) -> list[str]:
    where = ["--sections", "digits", "--out", str(out), "--device", "cpu"]
    return ["benchmark", str(recipe), *where, *options]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """For the processes of the jobs too."""
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.mark.slow
def test_failures_are_recorded_and_the_rest_goes_on(ran: Path) -> None:
    failure = json.loads((ran / "digits/auto_encoder/seed-1/failure.json").read_text())
    assert failure["exit"] == 2
    assert failure["error"].startswith("32 training images do not fill one batch of 999")
    for row in ("memae", "squid"):
        for seed in (0, 1):
            assert read_result(ran / "digits" / row / f"seed-{seed}") is not None
    assert "999" in (ran / "table.md").read_text()


@pytest.mark.slow
def test_a_result_says_how_it_was_made(ran: Path) -> None:
    folder = ran / "digits" / "memae" / "seed-1"
    result = read_result(folder)
    assert result is not None
    assert result.seed == 1
    assert (result.cost.steps, result.cost.published_steps) == (4 * 2, 100 * 2)
    assert result.evaluations.fingerprint == Run(folder).environment.data
    assert result.cost.peak_bytes > 0
    assert result.cost.run_bytes is not None
    assert result.cost.run_bytes > (folder / "model.safetensors").stat().st_size
    assert result.cost.parameters == sum(
        values.numel() for values in Run(folder).load_method().parameters()
    )
    assert list(result.evaluations.by_selection) == ["final", "best_epoch", "snapshot_mean"]
    for evaluation in result.evaluations.by_selection.values():
        value = auc(evaluation.scores, result.evaluations.images.label)
        assert evaluation.auc == pytest.approx(value, abs=1e-3)
        assert list(evaluation.metrics) == ["healthy", "best_accuracy"]
        for kind, metrics in evaluation.metrics.items():
            assert metrics.threshold.kind == kind
    snapshots = Run(folder).snapshots
    assert snapshots is not None
    np.testing.assert_allclose(result["snapshot_mean"].array, snapshots["test"].mean(0), rtol=1e-4)
    assert result.curve is not None
    assert result.curve.epochs == (1, 2, 3, 4)


@pytest.mark.slow
def test_a_job_leaves_its_evaluation_in_the_run_folder(ran: Path) -> None:
    folder = ran / "digits" / "memae" / "seed-1"
    kept, result = read_evaluations(Run(folder)), read_result(folder)
    assert kept is not None
    assert result is not None
    np.testing.assert_allclose(kept.final.array, result["final"].array, rtol=1e-4)


@pytest.mark.slow
def test_tables_parse(ran: Path) -> None:
    records = list(csv.DictReader((ran / "table.csv").read_text().splitlines()))
    values = json.loads((ran / "table.json").read_text())
    assert [record["row"] for record in records] == [row["row"] for row in values["rows"]]
    assert [row["row"] for row in values["rows"]].count("memae") == 3
    trivial = [row["row"] for row in values["rows"] if row["selection"] == "trivial"]
    assert trivial == list(ACQUISITION | CONTENT)
    assert {failure["job"] for failure in values["failures"]} == {
        "digits/auto_encoder/seed-0", "digits/auto_encoder/seed-1",
    }  # fmt: skip
    squid = next(row for row in values["rows"] if row["row"] == "squid")
    results = [read_result(ran / "digits" / "squid" / f"seed-{seed}") for seed in (0, 1)]
    aucs = [100 * result["final"].auc for result in results if result]
    assert squid["auc"] == pytest.approx(np.mean(aucs))
    assert squid["auc_std"] == pytest.approx(np.std(aucs, ddof=1))
    assert "auc_adjusted" in squid
    page = (ran / "table.html").read_text()
    detected, spent = 1 + len(records), 1 + len(records) - len(trivial)
    assert page.count("<tr>") == detected + spent
    assert "trivial: pixel kNN" in page


@pytest.mark.slow
def test_several_snapshots_cost_what_they_all_cost(ran: Path) -> None:
    rows = json.loads((ran / "table.json").read_text())["rows"]
    last, _, mean = [row for row in rows if row["row"] == "memae"]
    assert mean["scoring_seconds"] == pytest.approx(4 * last["scoring_seconds"])  # four snapshots
    assert last["run_bytes"] > 0
    assert mean["run_bytes"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "change", "epochs"),
    [
        ("squid", ["method.target_updates=1", "method.score_distillation_epochs=1"], [1]),
        ("memae", ["method.members=2", "method.epochs=2"], [1, 2, 3, 4]),
    ],
)
def test_the_end_of_a_training_may_be_none_of_its_snapshots(
    recipe: Path, tmp_path: Path, row: str, change: list[str], epochs: list[int]
) -> None:
    """Score distillation follows them, or they are of one member each."""
    settings = ["train.snapshot_every=1", *change]
    plan = plan_benchmark(
        recipe, tmp_path, rows=[row], sections=["digits"], seeds=1, settings=settings
    )
    result = run_job(plan.jobs[0], device="cpu")
    assert result.curve is not None
    assert list(result.curve.epochs) == epochs
    assert result["final"].scores != result["snapshot_mean"].scores
    ranges = {line.selection: line.late_auc_range for line in summarise_results([result])}
    assert ranges["final"] is None
    assert ranges["snapshot_mean"] is not None


@pytest.mark.slow
def test_auc_curves_of_rows_with_snapshots(ran: Path) -> None:
    assert (ran / "figures/auc-curves-digits.png").is_file()
    assert "Test AUC by epoch of MemAE" in (ran / "table.html").read_text()
    alone = table_of_results([ran / "digits" / "squid" / "seed-0" / RESULT])
    assert alone.auc_curves == {}


@pytest.mark.slow
def test_the_sheet_shows_methods_that_reconstruct(ran: Path) -> None:
    svg = ElementTree.parse(ran / "figures" / "digitanatomy.svg").getroot()
    assert svg.tag.endswith("svg")
    assert "figure-digitanatomy" in (ran / "table.html").read_text()


def test_missing_data_stop_a_benchmark_before_its_first_job(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    missing = ["--set", f"data.source={tmp_path / 'none.npz'}"]
    made = CliRunner().invoke(app, command(recipe, out, *missing))
    assert isinstance(made.exception, DataError)
    assert "Section 'digits' cannot be run" in str(made.exception)
    assert not out.exists()


def test_a_plan_is_listed_without_training(
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["squid", *command(recipe, out, "--list")])
    with pytest.raises(SystemExit, match="0"):
        main()
    listed = capsys.readouterr().out
    assert "memae" in listed
    assert "0 of 2" in listed
    assert not out.exists()


def test_expected_times_are_those_of_kept_results(recipe: Path, tmp_path: Path) -> None:
    path = ROOT / "recipes" / "benchmark.toml"
    plan = plan_benchmark(path, tmp_path, sections=["zhanglab"], rows=["vae"], seeds=1)
    job = plan.jobs[0]
    measured = expected_seconds(job)
    assert measured is not None
    assert 10 < measured < 1000
    # A row that was never run is expected to take as long as its steps.
    other = job.model_copy(update={"row": "half", "recipe": job.recipe})
    whole = expected_seconds(other)
    halved = job.recipe.with_settings(["method.epochs=125"])
    half = expected_seconds(other.model_copy(update={"recipe": halved}))
    assert whole is not None
    assert half == pytest.approx(whole / 2)
    unread = read_recipe(ROOT / "recipes" / "chexpert.toml")
    assert expected_seconds(other.model_copy(update={"recipe": unread})) is None


@pytest.mark.slow
def test_a_second_call_trains_nothing(ran: Path, recipe: Path) -> None:
    results = sorted(ran.rglob(RESULT))
    before = [(path, path.stat().st_mtime_ns) for path in results]
    made = CliRunner().invoke(app, command(recipe, ran, "--rows", "memae,squid"))
    assert made.exit_code == 0, made.output
    assert len(before) == 4
    assert [(path, path.stat().st_mtime_ns) for path in sorted(ran.rglob(RESULT))] == before


@pytest.mark.slow
def test_kept_results_make_the_same_table(ran: Path) -> None:
    kept = Path(f"{ran}-kept")
    assert len(list(kept.glob("*.json"))) == 5
    made = CliRunner().invoke(app, ["benchmark", "--table", str(kept)])
    assert made.exit_code == 0, made.output
    table = [line for line in (ran / "table.md").read_text().splitlines() if line.startswith("| ")]
    assert [line for line in made.output.splitlines() if line.startswith("| ")] == table
    assert table_of_results([kept]).records()[0]["row"] == "memae"
    assert len(table_of_results([kept, ran]).trivial) == len(ACQUISITION | CONTENT), "the same ones"
    by_labels = [
        (record["row"], record["selection"])
        for record in table_of_results([kept], selection="best_epoch").records()
        if record["selection"] != "trivial"
    ]
    assert by_labels == [("memae", "best_epoch"), ("squid", "final")]


@pytest.mark.slow
def test_a_result_of_another_recipe_is_not_taken(ran: Path, recipe: Path, tmp_path: Path) -> None:
    plan = plan_benchmark(
        recipe, ran, sections=["digits"], rows=["memae"], settings=["method.epochs=2"]
    )
    with pytest.raises(RunError, match="result of another recipe"):
        finished(plan.jobs[0])
    result = json.loads((plan.jobs[0].folder / RESULT).read_text())
    del result["recipe"]["method"]["entropy_weight"]  # as one made before there was this key
    later = tmp_path / "later"
    later.mkdir()
    (later / RESULT).write_text(json.dumps(result))
    same = plan_benchmark(recipe, ran, sections=["digits"], rows=["memae"]).jobs[0]
    assert finished(same.model_copy(update={"folder": later}))


def test_an_interrupted_job_is_resumed(recipe: Path, tmp_path: Path) -> None:
    """Interrupted in training: the same result as one run through."""
    choice = {"sections": ["digits"], "rows": ["memae"], "settings": ["train.save_minutes=0"]}
    whole = plan_benchmark(recipe, tmp_path / "whole", **choice).jobs[0]  # type: ignore[arg-type]
    parts = whole.model_copy(update={"folder": tmp_path / "parts"})
    expected = run_job(whole, device="cpu")
    with pytest.raises(StopHere):
        run_job(parts, device="cpu", monitor=Stopper(parts.folder))
    assert not finished(parts)
    result = run_job(parts, device="cpu")
    assert result["final"].scores == expected["final"].scores
    assert finished(parts)


class StopHere(Exception):
    """Raised in the middle of a training."""


class Stopper(Monitor):
    """Lets a training save after its second epoch, and then stops it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.epochs = 0

    def snapshot(self, epoch: int, method: Method) -> None:
        self.epochs = epoch

    def save(self, state: State) -> None:
        if self.epochs == 2:
            raise StopHere


def test_unreadable_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match="is damaged or of another kind"):
        table_of_results([tmp_path / "a.json"])
    with pytest.raises(DataError, match="No result was given"):
        table_of_results([tmp_path])
    with pytest.raises(DataError, match="No result was given"):
        table_of_results([])


def test_tables_measure_at_best_accuracy_and_false_alarms_at_the_healthy_threshold() -> None:
    scores, labels = (0.0, 1.0, 2.0, 3.0, 4.0), [0, 0, 1, 1, 1]
    metrics = {
        threshold.kind: evaluate(scores, labels, threshold=threshold, resamples=10)
        for threshold in (healthy(1.0), BEST_ACCURACY)
    }
    evaluation = Evaluation(selection="final", metrics=metrics, scores=scores)
    line = Line("made", "up", "final", ({"final": evaluation},))  # type: ignore[arg-type]
    assert (line.measure("accuracy").mean, line.measure("f1").mean) == (100.0, 100.0)
    assert (line.false_alarms.mean, line.found.mean) == (50.0, 100.0)


def test_kept_results_are_adjusted_for_sharpness() -> None:
    folder = ROOT / "benchmarks" / "results" / "jobs"
    table = table_of_results(sorted(folder.glob("zhanglab-[mt][er]*.json")))
    (line,) = table.lines
    assert line.adjusted is not None
    assert line.adjusted.mean > line.measure("auc").mean + 30, "sharpness hides what MemAE finds"
    sharp = next(one for one in table.trivial if one.name == "minus sharpness")
    assert sharp.adjusted == pytest.approx(50, abs=3), "within deciles it cannot help"
    assert f"| trivial: minus sharpness |  |  | {sharp.adjusted:.1f} | 79.3 |" in table.markdown()
    assert "(of 212 of 390 anomalous images; the others lie in strata" in table.markdown()


def test_spread_over_seeds() -> None:
    assert f"{Spread.of([1.0, 2.0, 3.0]):.1f}" == "2.0 ± 1.0"
    assert f"{Spread.of([2.0]):.1f}" == "2.0"
    assert summarise_results([]) == []
