"""The picture of results.md: how steady the authors' scores and ours are, from the kept results.

python docs/images/steadiness.py
"""

from pathlib import Path

from squid.benchmark import table_of_results

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "accuracy"


def main() -> None:
    files = [file for row in ("reference", "ours") for file in RESULTS.glob(f"zhanglab-{row}-*")]
    chart = table_of_results(sorted(files)).auc_curves["zhanglab"]
    (HERE / "steadiness.png").write_bytes(chart.light)


if __name__ == "__main__":
    main()
