"""The chart of plain and adjusted AUCs, from kept results."""

from dataclasses import replace
from pathlib import Path

import pytest

from squid.benchmark import table_of_results
from squid.benchmark.curves import adjusted_aucs, plot_adjusted_aucs, steadiest
from squid.benchmark.summary import Line
from squid.evaluation.record import Result

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


def test_results_from_before_the_adjustment_have_no_such_chart(lines: list[Line]) -> None:
    old = [replace(line, results=tuple(map(_unadjusted, line.results))) for line in lines]
    assert adjusted_aucs("zhanglab", lines) is not None
    assert adjusted_aucs("zhanglab", old) is None


def _unadjusted(result: Result) -> Result:
    kept = {
        name: one.model_copy(update={"confounds": None})
        for name, one in result.evaluations.by_selection.items()
    }
    evaluations = result.evaluations.model_copy(update={"by_selection": kept})
    return result.model_copy(update={"evaluations": evaluations})
