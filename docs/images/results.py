"""The figures of results.md, from kept jobs: test AUC by epoch of the authors' setting and of ours,
and what is left of each row's AUC where sharpness cannot help.

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
    chart = table_of_results([JOBS]).adjusted_aucs["zhanglab"]
    (HERE / "adjusted.png").write_bytes(chart.light)


if __name__ == "__main__":
    main()
