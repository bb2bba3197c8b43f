"""What several run folders say together: the strongest score there is, at any cost.

    python benchmarks/together.py RESULT.json... [--folders 2] [--out FOLDER]

Nothing is trained. Results are put together in the order given, so many at a time, and their
scores averaged. No two of these ensembles share a training, so their spread is that of another
try. Scores of our run folders are in units of healthy training images: two folders of two members
say what one folder with `method.members = 4` would. Of the results of stopping.py, which are read
at several epochs, it also tells how far apart these readings are.
"""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saved import read_results, results_parser
from speed import provenance

from squid.benchmark.summary import SHOWN, Spread
from squid.evaluation.metrics import BEST_ACCURACY, evaluate

Array = NDArray[np.float64]


def ensembles(scores: Array, folders: int) -> Array:
    """(results, n) -> (results // folders, n)"""
    whole = len(scores) // folders * folders
    return np.asarray(scores[:whole].reshape(-1, folders, scores.shape[1]).mean(1))


def measured(scores: Array, labels: NDArray[np.int64]) -> dict[str, float]:
    metrics = evaluate(scores, labels, threshold=BEST_ACCURACY).model_dump()
    return {name: 100 * metrics[name]["value"] for name in SHOWN}


def selected(scores: Array, labels: NDArray[np.int64], folders: int) -> dict[str, Any]:
    """Of the (results, n) scores of one protocol, or of one stop."""
    found = [measured(one, labels) for one in ensembles(scores, folders)]
    spreads = {name: Spread.of(one[name] for one in found) for name in SHOWN}
    return {
        "ensembles": {name: asdict(spread) for name, spread in spreads.items()},
        "auc of each": [one["auc"] for one in found],
        "all": measured(scores.mean(0), labels),
    }


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--folders", type=int, default=2, help="in an ensemble (default 2)")
    options = parser.parse_args()
    results = read_results(options.results)
    if not 0 < options.folders <= len(results):
        parser.error(f"{options.folders} at a time cannot be taken of {len(results)} results.")
    if len({result["fingerprint"] for result in results}) > 1:
        parser.error("the results are of different splits.")
    labels = np.array(results[0]["scores"]["label"])
    select_scores = {
        name: selected(
            np.array([result["scores"][name] for result in results]), labels, options.folders
        )
        for name in results[0]["scores"]
        if name != "label"
    }
    summary: dict[str, Any] = {
        **provenance("cpu"),
        "commits": [result["commit"] for result in results],
        "seeds": [result["seed"] for result in results],
        "folders": options.folders,
        **select_scores,
    }
    for name, found in select_scores.items():
        told = [f"{shown} {Spread(**spread):.1f}" for shown, spread in found["ensembles"].items()]
        print(f"{name}: {', '.join(told)}; all {found['all']['auc']:.1f}")
    if all(name.isdigit() for name in select_scores):  # epochs
        ranges = np.ptp([found["auc of each"] for found in select_scores.values()], 0).tolist()
        spread = Spread.of(ranges)
        summary["range"] = {"each": ranges, **asdict(spread)}
        print(f"AUC range over epochs: {spread:.1f}")
    name = f"together-{results[0]['section']}-{results[0]['row']}-{options.folders}.json"
    (options.out / name).write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
