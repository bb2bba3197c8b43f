"""What several trainings say together: the strongest score there is, at any cost.

    python benchmarks/together.py RESULT.json... [--out FOLDER]

Nothing is trained. Means over snapshots, which are in units of healthy training images, are
averaged over all results but one, each left out in turn: as many ensembles as there are results.
They overlap, so their spread is less than that of ensembles trained apart.
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


def without_each(scores: Array) -> Array:
    """(results, n) -> (results, n): the mean of all others."""
    return np.asarray((scores.sum(0) - scores) / (len(scores) - 1))


def measured(scores: Array, labels: NDArray[np.int64]) -> dict[str, float]:
    metrics = evaluate(scores, labels, threshold=PAPER).model_dump()
    return {name: 100 * metrics[name]["value"] for name in SHOWN}


def main() -> None:
    parser = results_parser(__doc__)
    options = parser.parse_args()
    if len(options.results) < 3:
        parser.error("three results at least: one is left out in turn, and one is no ensemble.")
    results = read_results(options.results)
    if len({result["fingerprint"] for result in results}) > 1:
        parser.error("the results are of different splits.")
    if any("snapshots" not in result["scores"] for result in results):
        parser.error("a result took no snapshots.")
    labels = np.array(results[0]["scores"]["label"])
    scores = np.array([result["scores"]["snapshots"] for result in results])
    ensembles = [measured(one, labels) for one in without_each(scores)]
    spreads = {name: Spread.of(one[name] for one in ensembles) for name in SHOWN}
    summary: dict[str, Any] = {
        **provenance("cpu"),
        "commits": [result["commit"] for result in results],
        "seeds": [result["seed"] for result in results],
        "all but one": {name: asdict(spread) for name, spread in spreads.items()},
        "all": measured(scores.mean(0), labels),
    }
    for name, spread in spreads.items():
        print(f"{name}: {spread:.1f}, all {summary['all'][name]:.1f}")
    file = options.out / f"together-{results[0]['section']}-{results[0]['row']}.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
