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
from squid.metrics import PAPER, evaluate

Array = NDArray[np.float64]


def ensembles(scores: Array, folders: int) -> Array:
    """(results, n) -> (results // folders, n)"""
    whole = len(scores) // folders * folders
    return np.asarray(scores[:whole].reshape(-1, folders, scores.shape[1]).mean(1))


def measured(scores: Array, labels: NDArray[np.int64]) -> dict[str, float]:
    metrics = evaluate(scores, labels, threshold=PAPER).model_dump()
    return {name: 100 * metrics[name]["value"] for name in SHOWN}


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
    summary: dict[str, Any] = {
        **provenance("cpu"),
        "commits": [result["commit"] for result in results],
        "seeds": [result["seed"] for result in results],
        "folders": options.folders,
    }
    aucs = {}
    for reading in [name for name in results[0]["scores"] if name != "label"]:
        scores = np.array([result["scores"][reading] for result in results])
        found = [measured(one, labels) for one in ensembles(scores, options.folders)]
        spreads = {name: Spread.of(one[name] for one in found) for name in SHOWN}
        everything = measured(scores.mean(0), labels)
        aucs[reading] = [one["auc"] for one in found]
        summary[reading] = {
            "ensembles": {name: asdict(spread) for name, spread in spreads.items()},
            "auc of each": aucs[reading],
            "all": everything,
        }
        told = ", ".join(f"{name} {spread:.1f}" for name, spread in spreads.items())
        print(f"{reading}: {told}; all {everything['auc']:.1f}")
    if all(reading.isdigit() for reading in aucs):
        ranges = np.ptp(list(aucs.values()), 0)
        summary["range"] = {"each": ranges.tolist(), **asdict(Spread.of(ranges.tolist()))}
        print(f"AUC range over readings: {Spread.of(ranges.tolist()):.1f}")
    name = f"together-{results[0]['section']}-{results[0]['row']}-{options.folders}.json"
    (options.out / name).write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
