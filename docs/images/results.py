"""The figures of results.md, from kept jobs: test AUC by epoch of the authors' setting and of ours,
the ROC curves of all rows, and what is left of each row's AUC where sharpness cannot help, on
ZhangLab and on RSNA.

python docs/images/results.py
"""

from pathlib import Path

from squid.benchmark import table_of_results

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "benchmarks" / "results" / "jobs"


def main() -> None:
    files = [file for row in ("ours", "reference") for file in JOBS.glob(f"zhanglab-{row}-seed-*")]
    chart = table_of_results(files).auc_curves["zhanglab"]
    (HERE / "steadiness.png").write_bytes(chart.light)
    table = table_of_results([JOBS])
    (HERE / "adjusted.png").write_bytes(table.adjusted_aucs["zhanglab"].light)
    (HERE / "adjusted-rsna.png").write_bytes(table.adjusted_aucs["rsna_pa"].light)
    (HERE / "roc.png").write_bytes(table.roc_curves["zhanglab"].light)


if __name__ == "__main__":
    main()
