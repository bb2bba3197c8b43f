"""The charts of a benchmark, from kept results."""

import shutil
import subprocess
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from squid.benchmark import table_of_results
from squid.benchmark.curves import (
    adjusted_aucs,
    plot_adjusted_aucs,
    roc_curves,
    steadiest,
    value_curve,
)
from squid.benchmark.summary import Line, summarise_results
from squid.cli import app
from squid.evaluation.record import Result, read_record

JOBS = Path(__file__).parents[2] / "benchmarks" / "results" / "jobs"


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    rows = ("memae", "salad", "cutpaste")
    return list(table_of_results([JOBS / f"zhanglab-{row}-seed-0.json" for row in rows]).lines)


def test_rows_are_sorted_by_the_adjusted_auc_and_show_both(lines: list[Line]) -> None:
    axes = plot_adjusted_aucs(steadiest(lines)).axes[0]
    titles = [label.get_text() for label in axes.get_yticklabels()]
    assert titles == ["SALAD-style", "MemAE", "CutPaste"]
    connection = next(line for line in axes.lines if list(line.get_ydata()) == [1, 1])
    plain, adjusted = connection.get_xdata()
    assert adjusted > plain + 30, "sharpness hides what MemAE finds"


def test_a_row_is_shown_as_what_its_training_leaves_or_as_its_snapshots() -> None:
    """Distilled scores are a mean over time already."""
    files = [JOBS / f"zhanglab-{row}-seed-0.json" for row in ("memae", "reference", "ours")]
    shown = {line.row: line.selection for line in steadiest(table_of_results(files).lines)}
    assert shown == {"memae": "final", "reference": "snapshot_mean", "ours": "final"}


def test_results_from_before_the_adjustment_have_no_such_chart(lines: list[Line]) -> None:
    old = [replace(line, results=tuple(map(_unadjusted, line.results))) for line in lines]
    assert adjusted_aucs("zhanglab", lines) is not None
    assert adjusted_aucs("zhanglab", old) is None


def test_the_roc_of_many_rows_has_room_for_its_legend_and_its_axis() -> None:
    files = [*JOBS.glob("zhanglab-*-seed-0.json")]
    lines = list(table_of_results(files).lines)
    chart = roc_curves("zhanglab", lines)
    assert chart is not None
    figure = chart.plot()
    figure.savefig(BytesIO(), dpi=figure.dpi)
    width, height = figure.canvas.get_width_height()
    (legend,), (axes,) = figure.legends, figure.axes
    assert len(legend.get_texts()) == len(steadiest(lines)) == 19
    for part in (legend, axes.xaxis.label, axes.yaxis.label):
        box = part.get_window_extent()
        assert -1 <= box.x0 < box.x1 <= width + 1
        assert -1 <= box.y0 < box.y1 <= height + 1


def test_kept_files_give_every_figure_of_a_benchmark(tmp_path: Path) -> None:
    """Two rows of a table, and the same scores as the points of a curve."""
    files = [JOBS / f"zhanglab-{row}-seed-0.json" for row in ("reference", "memae")]
    for value, file in enumerate(files):
        result = read_record(Result, file)
        place = {"section": "made", "heading": "A curve", "axis": "method.k", "value": value}
        (tmp_path / file.name).write_text(result.model_copy(update=place).model_dump_json())
    words = ["benchmark", *map(str, files), str(tmp_path), "--table", "--out", str(tmp_path / "t")]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert {path.name for path in (tmp_path / "t" / "figures").glob("*.png")} == {
        "roc-zhanglab.png", "adjusted-zhanglab.png", "auc-curves-zhanglab.png",
        "values-made.png", "auc-curves-made.png",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "t").glob("table.*")} == {
        "table.md", "table.csv", "table.json", "table.html",
    }  # fmt: skip


def test_contamination_is_shown_as_the_share_of_healthy_images() -> None:
    """As in the paper's figure, which begins with all images healthy."""
    result = read_record(Result, JOBS / "zhanglab-memae-seed-0.json")
    place = {"section": "made", "axis": "data.contamination", "series": "MemAE"}
    results = [
        result.model_copy(update={**place, "row": f"row {share}", "value": share})
        for share in (0.0, 0.25)
    ]
    chart = value_curve("made", summarise_results(results))
    assert chart is not None
    axes = chart.plot().axes[0]
    assert axes.get_xlabel() == "healthy training images, %"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "75"]


def test_one_command_makes_all_of_them() -> None:
    """`make results` rereads every study of kept scores and writes every page and figure."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    root = JOBS.parents[2]
    shown = subprocess.run(
        [make, "--dry-run", "results"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    for study in ("agreement", "ensembles", "rows", "site", "sharpness"):
        assert f"benchmarks/reread.py {study} " in shown
    for command in (
        "docs/reference/generate.py",
        "docs/images/results.py",
        "squid benchmark benchmarks/results/jobs --table --out runs/results",
    ):
        assert command in shown


def _unadjusted(result: Result) -> Result:
    kept = {
        name: one.model_copy(update={"confounds": None})
        for name, one in result.evaluations.by_selection.items()
    }
    evaluations = result.evaluations.model_copy(update={"by_selection": kept})
    return result.model_copy(update={"evaluations": evaluations})
