"""The table of where heatmaps point, from kept results."""

from pathlib import Path

import pytest

from squid.benchmark import BenchmarkTable, table_of_results
from squid.benchmark.localisation import localisation

JOBS = Path(__file__).parents[2] / "benchmarks" / "results" / "jobs"


@pytest.fixture(scope="module")
def table() -> BenchmarkTable:
    rows = ("panda", "mkd", "ae_u", "f_anogan")
    files = [JOBS / f"rsna_pa-{row}-seed-0.json" for row in rows]
    return table_of_results([*files, *JOBS.glob("rsna_pa-fusion-seed-*.json")])


def test_rows_with_a_heatmap_are_sorted_by_hits_with_the_priors_last(table: BenchmarkTable) -> None:
    found = localisation(table.lines)
    assert found is not None
    header, rows = found
    titles = [row[0] for row in rows]
    assert titles == [
        "Fusion of AE-U and synthetic lesions", "AE-U, equalised", "M-KD", "f-AnoGAN",
        "prior: centre", "prior: mean box",
    ]  # fmt: skip
    by_title = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    fusion, prior = by_title[titles[0]], by_title["prior: mean box"]
    assert fusion["Seeds"] == "5"
    assert "±" in fusion["Boxes hit"]
    assert float(fusion["Boxes hit"].split()[0]) > float(prior["Boxes hit"]) + 15


def test_every_form_of_the_table_has_it(table: BenchmarkTable) -> None:
    assert "| prior: mean box |" in table.markdown()
    assert "Pixel AUROC" in table.html()


def test_results_without_boxes_have_no_such_table() -> None:
    lines = table_of_results([JOBS / "zhanglab-memae-seed-0.json"]).lines
    assert localisation(lines) is None
