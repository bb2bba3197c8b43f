"""How alike do trainings of one setting rank the test images?

    python benchmarks/agreement.py RESULT.json... [--out FOLDER]

Nothing is trained, and agreement needs no label: what trainings agree on is not the whim of one.
Beside it stands the same of means of two trainings and means of two others.
"""

import json
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saved import read_results, results_parser
from scipy.stats import spearmanr
from speed import provenance

Array = NDArray[np.float64]


def agreement(pairs: Iterable[tuple[Array, Array]]) -> float | None:
    """Mean rank correlation; None where there is no pair."""
    found = [float(spearmanr(one, other).statistic) for one, other in pairs]
    return sum(found) / len(found) if found else None


def compare(scores: Array, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Of the (trainings, n) scores of one protocol."""
    pairs = list(combinations(range(len(scores)), 2))
    means = {pair: scores[list(pair)].mean(0) for pair in pairs}
    apart = [(a, b) for a, b in combinations(pairs, 2) if not set(a) & set(b)]
    return {
        "all": agreement((scores[i], scores[j]) for i, j in pairs),
        "healthy": agreement((scores[i][labels == 0], scores[j][labels == 0]) for i, j in pairs),
        "means of two": agreement((means[a], means[b]) for a, b in apart),
    }


def main() -> None:
    parser = results_parser(__doc__)
    options = parser.parse_args()
    results = read_results(options.results)
    if len(results) < 2:
        parser.error("two results at least.")
    if len({(result["fingerprint"], result["row"]) for result in results}) > 1:
        parser.error("the results are of different splits or rows.")
    labels = np.array(results[0]["scores"]["label"])
    selections = [name for name in results[0]["scores"] if name != "label"]
    found = {
        name: compare(np.array([result["scores"][name] for result in results]), labels)
        for name in selections
    }
    summary = {**provenance("cpu"), "seeds": [result["seed"] for result in results], **found}
    for name, row in found.items():
        print(f"{name}: two trainings {row['all']:.2f} (healthy images {row['healthy']:.2f})")
    file = options.out / f"agreement-{results[0]['section']}-{results[0]['row']}.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
