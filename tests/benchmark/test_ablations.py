"""recipes/ablations.toml: the paper's tables and curves, run here on digits of a few pixels."""

import shutil
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from squid.benchmark import plan_benchmark, run_benchmark, table_of_results
from squid.benchmark.curves import plot_value_curve, roc_curves, steadiest
from squid.benchmark.plan import Plan
from squid.benchmark.runner import JobState, run_plan
from squid.benchmark.store import RESULT, ResultStore, read_result
from squid.benchmark.summary import Spread, published, summarise_results
from squid.benchmark.timing import expected_seconds
from squid.data.digitanatomy import DigitAnatomy
from squid.data.image_set import ImageSet
from squid.errors import ConfigError
from squid.evaluation.record import Result
from squid.methods.squid.config import SquidConfig

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "recipes" / "ablations.toml"
REMOVALS = {
    "no-space-aware", "no-inpainting", "hard-shrinkage", "no-distillation", "no-stop-gradient",
    "matrix-for-queue", "no-shortcut", "no-decoder-memory",
}  # fmt: skip
TINY = [
    "method.size=48", "method.width=4", "method.depth=1", "method.merge_level=1",
    "method.heads=2", "method.discriminator_width=4", "method.matrix_slots=20", "method.epochs=2",
    "method.epoch_steps=1", "method.batch_size=4", "train.snapshot_every=1",
    "train.precision=float32",
]  # fmt: skip
"""SQUID in a fraction of a second, with every patch of a grid of eight."""
SQUID_SECTIONS = (
    "components", "readings", "appendix", "grid", "topk", "slots", "rho", "contamination",
    "scaling", "size",
)  # fmt: skip


@cache
def whole_plan(out: Path = Path("nowhere")) -> Plan:
    return plan_benchmark(FILE, out)


# What is planned


def test_each_row_of_a_table_changes_one_thing() -> None:
    plan = whole_plan()
    full = next(job for job in plan.of("components") if job.row == "full").recipe
    rows = [job for name in ("components", "readings", "appendix") for job in plan.of(name)]
    for job in rows:
        if job.recipe.method.name == "squid":
            method = job.recipe.method.model_dump()
            changed = [k for k, value in method.items() if value != full.method.model_dump()[k]]
            assert len(changed) == (0 if job.row == "full" else 1), job.row
            assert job.recipe.train == full.train
    assert isinstance(full.method, SquidConfig)
    assert (full.method.epochs, full.method.members, full.method.target_updates) == (200, 1, 0)
    assert {job.row for job in plan.of("components")} == REMOVALS | {"full"}
    assert [job.recipe.seed for job in plan.of("components") if job.row == "full"] == [0, 1, 2]


def test_a_curve_varies_one_key_and_nothing_else() -> None:
    plan = whole_plan()
    values = {name: [job.value for job in plan.of(name)] for name in plan.sections}
    assert values["grid"] == [1, 2, 4, 8]
    assert (values["slots"][0], values["slots"][-1]) == (50, 1000)
    assert (values["rho"][0], values["rho"][-1]) == (0.5, 1.0)
    assert set(values["contamination"]) == {0.0, 0.1, 0.25, 0.5}
    assert {job.series for job in plan.of("contamination")} == {
        "SQUID", "CutPaste", "PANDA", "M-KD",
    }  # fmt: skip
    for name in ("topk", "slots", "rho", "size"):
        jobs = plan.of(name)
        key = jobs[0].axis.removeprefix("method.")
        for job in jobs:
            method = job.recipe.method.model_dump()
            assert method.pop(key) == job.value
            assert method == {
                k: v for k, v in jobs[0].recipe.method.model_dump().items() if k != key
            }
    steps = {job.value: job.recipe.method.epochs * max(1, int(job.value or 0) // 16)  # type: ignore[attr-defined]
             for job in plan.of("scaling")}  # fmt: skip
    assert max(steps.values()) < 1.01 * min(steps.values()), "only the number of images varies"


def test_one_recipe_is_run_once_for_all_sections() -> None:
    plan = whole_plan()
    places = {place.section: place.row for job in plan.jobs for place in job.places
              if len(job.places) > 2 and job.recipe.method.epochs == 100}  # type: ignore[attr-defined]  # fmt: skip
    assert places == {
        "grid": "full-grid-2", "topk": "full-k-5", "slots": "full-slots-200",
        "rho": "full-rho-0.95", "size": "full-size-128",
    }  # fmt: skip
    (full,) = [job for job in plan.jobs if (job.row, job.recipe.seed) == ("full", 1)]
    assert [place.section for place in full.places] == ["components", "appendix", "contamination"]
    assert len(plan.jobs) < sum(len(plan.of(name)) for name in plan.sections)


def test_the_papers_values_stand_beside_ours() -> None:
    assert published("zhanglab", "no-space-aware")["auc"] == Spread(77.6, 0.5)
    plan = whole_plan()
    without = {
        job.row
        for name in ("components", "readings", "appendix")
        for job in plan.of(name)
        if not published("zhanglab", job.row)
    }
    assert without == {"patch-decoder-memory"}
    # Figures print no numbers: only points that a table has, too, are known.
    known = [job.row for name in ("grid", "topk", "slots", "rho") for job in plan.of(name)
             if published("zhanglab", job.row)]  # fmt: skip
    assert known == ["full-grid-2", "full-k-5", "full-slots-200", "full-rho-0.95"]
    assert published("zhanglab", "mkd-contamination-0")["auc"] == Spread(74.1, 2.6)


def test_the_time_of_every_row_is_expected_without_reading_images() -> None:
    assert all(expected_seconds(job) for job in whole_plan().jobs)


def test_what_no_row_has_cannot_be_changed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "recipes" / "zhanglab-short.toml", tmp_path)
    text = FILE.read_text().replace("[sections.grid.change.full-grid-8]",
                                    "[sections.grid.change.full-grid-9]")  # fmt: skip
    (tmp_path / "ablations.toml").write_text(text)
    with pytest.raises(ConfigError, match="'grid' changes 'full-grid-9', which is no row"):
        plan_benchmark(tmp_path / "ablations.toml", tmp_path / "out")


# Running


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ZhangLab of digits: right ones are normal, wrong ones have pneumonia."""
    root = tmp_path_factory.mktemp("zhanglab")
    splits = DigitAnatomy(train=150, validation=20, test=12, contamination=0.6, noise=0.02).load(48)
    parts: dict[str, ImageSet] = {"train": splits.train, "test": splits.test}
    for part, images in parts.items():
        for name, chosen in (("normal", images.normals), ("pneumonia", images.anomalous)):
            names = [f"IM-{i:04d}-{part}.jpeg" if name == "normal" else f"person{i}_{part}.jpeg"
                     for i in range(len(chosen))]  # fmt: skip
            np.savez(root / f"{part}_{name}.npz", images=chosen.pixels[:, 0].numpy(), names=names)
    return root


def tiny_plan(out: Path, digits: Path, section: str, rows: Sequence[str]) -> Plan:
    return small_plan(out, digits, section, rows, TINY)


def small_plan(
    out: Path, digits: Path, section: str, rows: Sequence[str], method: Sequence[str]
) -> Plan:
    held = ["data.validation_normals=10", "data.validation_anomalous=10"]
    settings = [*method, f"data.root={digits}", *held]
    return plan_benchmark(FILE, out, sections=[section], rows=rows, seeds=1, settings=settings)


@pytest.fixture(scope="module")
def results(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    """Results of the first and last rows of every section."""
    from squid.benchmark.job import run_job

    out, found = tmp_path_factory.mktemp("ablations"), {}
    for section in SQUID_SECTIONS:
        listed = [job for job in whole_plan().of(section) if job.recipe.method.name == "squid"]
        names = list(dict.fromkeys(job.row for job in listed))
        # All removals and blocks; of a curve its ends, and of training sizes what is there.
        rows = names if listed[0].value is None else [names[0], names[-1]]
        rows = names[:1] if section == "scaling" else rows
        plan = tiny_plan(out / section, digits, section, rows)
        store = ResultStore(plan)
        for job in plan.jobs:
            run_job(job, device="cpu")
            store.add(job)
        found[section] = list(store.results())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("section", SQUID_SECTIONS)
def test_every_section_runs_at_tiny_size(section: str, results: dict[str, list[Result]]) -> None:
    found = results[section]
    assert len(found) > (0 if section == "scaling" else 1)
    for result in found:
        assert result.section == section
        for selection in ("final", "best_epoch", "snapshot_mean"):
            evaluation = result[selection]
            assert evaluation.noisy_auc is not None
            assert 0 <= evaluation.noisy_auc.value <= 1
            assert 0 <= evaluation.auc <= 1


@pytest.mark.slow
def test_a_curve_shows_each_value_once_and_the_papers_point(
    results: dict[str, list[Result]],
) -> None:
    lines = summarise_results(results["contamination"])
    plotted = steadiest(lines)
    assert [line.value for line in plotted] == [0.0, 0.5]
    assert {line.selection for line in plotted} == {"snapshot_mean"}
    figure: Figure = plot_value_curve(plotted)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "50"]
    means = [line.measure("auc").mean for line in plotted]
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata(), float), means)
    points = [line for line in axes.lines if line.get_marker() == "D"]
    assert [list(np.asarray(p.get_ydata(), float)) for p in points] == [[87.6]]


@pytest.mark.slow
def test_the_roc_figure_has_a_curve_for_each_row(results: dict[str, list[Result]]) -> None:
    lines = summarise_results(results["components"])
    chart = roc_curves("components", lines)
    assert chart is not None
    labels = [line.get_label() for line in chart.plot().axes[0].lines][1:]
    assert len(labels) == len(REMOVALS) + 1
    full = next(line for line in lines if (line.row, line.selection) == ("full", "snapshot_mean"))
    assert f"SQUID: {full.measure('auc').mean:.1f}" in labels
    assert roc_curves("rho", summarise_results(results["rho"])) is None


# The other methods' rows

SHORT = [
    "method.size=32", "method.batch_size=8", "data.training_normals=16",
    "train.precision=float32",
]  # fmt: skip
BACKBONE = [*SHORT, "method.epochs=1", "method.backbone.weights=random"]
AUTO_ENCODER = [*SHORT, "method.epochs=1", "method.channels=[4,8]", "method.slots=10"]
OTHERS: dict[str, dict[str, list[str]]] = {
    "appendix": {"memae": AUTO_ENCODER, "patch_memae": AUTO_ENCODER},
    "contamination": {
        "cutpaste": [*SHORT, "method.steps=2", "method.width=4", "method.head_width=8"],
        "panda": BACKBONE,
        "mkd": BACKBONE,
    },
}
"""Rows of other methods in two sections, each in a second or two."""


@pytest.fixture(scope="module")
def others(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    """Results of each row, and of the ends of a curve."""
    from squid.benchmark.job import run_job

    out, found = tmp_path_factory.mktemp("others"), {}
    for section, rows in OTHERS.items():
        found[section] = []
        for row, settings in rows.items():
            listed = [job.row for job in whole_plan().of(section) if job.row.startswith(row)]
            ends = list(dict.fromkeys([listed[0], listed[-1]]))
            plan = small_plan(out / row, digits, section, ends, settings)
            found[section] += [run_job(job, device="cpu") for job in plan.jobs]
    return found


@pytest.mark.slow
def test_memae_whole_and_by_patches_stand_in_one_table(others: dict[str, list[Result]]) -> None:
    whole, patches = others["appendix"]
    assert (whole.row, patches.row) == ("memae", "patch_memae")
    assert whole.heading == patches.heading == whole_plan().of("appendix")[0].heading
    for result in (whole, patches):
        assert 0 < result.cost.steps < result.cost.published_steps
        assert result.cost.parameters > 0
        assert 0 <= result["final"].auc <= 1
    assert whole["final"].scores != patches["final"].scores


@pytest.mark.slow
def test_other_methods_are_trained_on_anomalous_images_too(
    others: dict[str, list[Result]],
) -> None:
    found = others["contamination"]
    lines = summarise_results(found)
    assert [(one.series, one.value) for one in found] == [
        (name, value) for name in ("CutPaste", "PANDA", "M-KD") for value in (0.0, 0.5)
    ]
    for clean, mixed in zip(found[::2], found[1::2], strict=True):
        assert clean.evaluations.images == mixed.evaluations.images
        assert clean.evaluations.fingerprint != mixed.evaluations.fingerprint, "other training"
        assert clean["final"].scores != mixed["final"].scores
        anomalous = mixed.recipe.data.load(32).train.anomalous
        assert 2 * len(anomalous) == len(clean.recipe.data.load(32).train), "half of all"
    (axes,) = plot_value_curve(steadiest(lines)).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["CutPaste", "PANDA", "M-KD"]
    points = [line for line in axes.lines if line.get_marker() == "D"]
    assert [float(np.asarray(point.get_ydata(), float)[0]) for point in points] == [
        73.6, 65.7, 74.1,
    ]  # fmt: skip


# Going on


@pytest.mark.slow
def test_a_kept_result_serves_another_section_and_another_machine(
    digits: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    first = tiny_plan(tmp_path / "one", digits, "components", ["full"])
    run_benchmark(first, device="cpu", kept=kept)
    assert sorted(path.name for path in kept.iterdir()) == [
        "components-full-seed-0.json", "components-trivial.json",
    ]  # fmt: skip
    # Elsewhere nothing is left of the training but the kept file.
    again = tiny_plan(tmp_path / "two", digits, "contamination", ["full-contamination-0"])
    table = run_benchmark(again, device="cpu", kept=kept)
    assert not list((tmp_path / "two").rglob("model.safetensors"))
    assert [line.title for line in table.lines][:1] == ["SQUID, contamination 0"]
    both = table_of_results([kept])
    assert both.sections == ["components", "contamination"]
    assert "## Table 2: without one component" in both.markdown()


@pytest.mark.slow
def test_after_the_time_is_up_no_job_is_started(digits: Path, tmp_path: Path) -> None:
    plan = tiny_plan(tmp_path, digits, "grid", ["full-grid-2", "full-grid-4"])
    states = run_plan(plan, ResultStore(plan), minutes=0.0, device="cpu")
    assert [state.status for state in states] == ["waiting", "waiting"]
    assert not list(tmp_path.rglob(RESULT))


@pytest.mark.slow
def test_a_job_that_runs_when_the_time_is_up_goes_on_in_the_next_call(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny_plan(tmp_path, digits, "grid", ["full-grid-2"])
    job = plan.jobs[0]
    long = job.model_copy(update={"recipe": job.recipe.with_settings(["method.epochs=100000"])})
    plan = Plan(plan.title, plan.out, (long,), plan.rows)
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], sleep=time.sleep)
    monkeypatch.setattr("squid.benchmark.runner.time", clock)

    def end_once_it_trains(states: Sequence[JobState]) -> None:
        if (long.folder / "history.csv").is_file():
            ahead[0] = 3600.0

    (state,) = run_plan(plan, ResultStore(plan), minutes=10, device="cpu", watch=end_once_it_trains)
    assert state.status == "waiting"
    assert (long.folder / "resume.pt").is_file(), "its training is saved"
    assert read_result(long.folder) is None
