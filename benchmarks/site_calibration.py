"""What thresholds are worth where images come from another site than those they were set on.

    python benchmarks/site_calibration.py RESULT.json... [--out FOLDER]

The threshold for 10 % false alarms of a run folder is taken from healthy validation images (as each
result has it), and from one half of the healthy test images, a random one 200 times, with the other
half judged.
"""

import json
from dataclasses import asdict
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saved import Result, read_results, results_parser
from speed import provenance

from squid.benchmark.summary import Spread
from squid.calibration import calibrate

RATE = 0.1
HALVINGS = 200


def elsewhere(result: Result) -> tuple[float, float]:
    """False alarms and share found by the threshold of validation images."""
    metrics = result["evaluations"]["last"]["normals"]["metrics"]
    return 1 - metrics["specificity"]["value"], metrics["sensitivity"]["value"]


def at_the_site(result: Result) -> tuple[float, float]:
    """The same by thresholds of half of the healthy test images, the mean over halvings."""
    labels, scores = (np.array(result["scores"][key]) for key in ("label", "last"))
    healthy, anomalous = scores[labels == 0], scores[labels == 1]
    generator = np.random.default_rng(0)
    shares = [_halved(generator.permutation(healthy), anomalous) for _ in range(HALVINGS)]
    alarms, found = zip(*shares, strict=True)
    return fmean(alarms), fmean(found)


def _halved(healthy: NDArray[np.float64], anomalous: NDArray[np.float64]) -> tuple[float, float]:
    known, judged = np.array_split(healthy, 2)
    threshold = calibrate(known, known, [RATE]).threshold(RATE)
    return float((judged > threshold).mean()), float((anomalous > threshold).mean())


def main() -> None:
    options = results_parser(__doc__).parse_args()
    results = read_results(options.results)
    summary: dict[str, Any] = {
        **provenance("cpu"),
        "commits": [result["commit"] for result in results],
        "rate": RATE,
    }
    for name, measure in (("validation images", elsewhere), ("half of the site's", at_the_site)):
        alarms, found = (
            Spread.of(100 * share for share in shares)
            for shares in zip(*map(measure, results), strict=True)
        )
        summary[name] = {"false_alarms": asdict(alarms), "found": asdict(found)}
        print(f"{name}: {alarms:.1f} % false alarms, {found:.1f} % found")
    file = options.out / "site-calibration.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
