"""Studies of kept results: more numbers from the scores of trainings that are done.

    python benchmarks/reread.py agreement RESULT.json...
    python benchmarks/reread.py ensembles RESULT.json... [--folders 2]
    python benchmarks/reread.py rows RESULT.json... --beside RESULT.json...
    python benchmarks/reread.py sharpness RESULT.json... [--recipe recipes/zhanglab.toml]
    python benchmarks/reread.py site RESULT.json...

A result is a file of benchmarks/results/jobs. Each command prints its numbers and writes them with
their provenance as JSON into --out, by default benchmarks/results/studies; a file that has these
numbers already is left as it is. Nothing is trained. `make results` runs all of them.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from kept_scores import Array, Labels, Study, read_row, stacked
from scipy.stats import spearmanr
from sharpness_study import study_sharpness
from speed import provenance

from squid.benchmark.summary import SHOWN, Spread
from squid.calibration import calibrate
from squid.data.image_set import ANOMALOUS, NORMAL
from squid.errors import DataError, SquidError
from squid.evaluation.confounds import covariate
from squid.evaluation.metrics import BEST_ACCURACY, auc, evaluate
from squid.evaluation.record import Result, read_record

STUDIES = Path(__file__).parent / "results" / "studies"
HALVINGS = 200
"""Random halves of a site's healthy images."""


# Agreement


def study_agreement(paths: Sequence[Path]) -> Study:
    """How alike do trainings of one row rank the test images? This needs no label."""
    found = read_row(paths)
    if len(found) < 2:
        raise DataError("Agreement takes two results or more.")
    agreement = {
        name: rank_agreement(scores, found[0].labels) for name, scores in stacked(found).items()
    }
    return Study(
        f"agreement-{found[0].section}-{found[0].row}",
        [
            f"{name}: two trainings {one['all']:.2f} (healthy images {one['healthy']:.2f})"
            for name, one in agreement.items()
        ],
        {"seeds": [one.seed for one in found], **agreement},
    )


def rank_agreement(scores: Array, labels: Labels) -> dict[str, float | None]:
    """Mean rank correlation of two trainings, and of the means of two with those of two others.

    `scores` is (trainings, n)."""
    pairs = list(combinations(range(len(scores)), 2))
    means = {pair: scores[list(pair)].mean(0) for pair in pairs}
    # Means that share a training would agree for that reason alone.
    disjoint = [(a, b) for a, b in combinations(pairs, 2) if not set(a) & set(b)]
    healthy = scores[:, labels == NORMAL]
    return {
        "all": _mean_correlation((scores[i], scores[j]) for i, j in pairs),
        "healthy": _mean_correlation((healthy[i], healthy[j]) for i, j in pairs),
        "means of two": _mean_correlation((means[a], means[b]) for a, b in disjoint),
    }


def _mean_correlation(pairs: Iterable[tuple[Array, Array]]) -> float | None:
    """None where there is no pair."""
    found = [float(spearmanr(one, other).statistic) for one, other in pairs]
    return sum(found) / len(found) if found else None


# Ensembles


def study_ensembles(paths: Sequence[Path], folders: int) -> Study:
    """How good is the mean score of several run folders?

    Run folders score in units of healthy training images, so their scores can be averaged: two
    folders of two members score like one with `method.members = 4`. The results of stops, which
    have scores at several epochs, also give the range of the AUC over these epochs."""
    found = read_row(paths)
    if not 0 < folders <= len(found):
        raise DataError(f"{folders} at a time cannot be taken of {len(found)} results.")
    measured = {
        name: measure_ensembles(scores, found[0].labels, folders)
        for name, scores in stacked(found).items()
    }
    lines = []
    for name, one in measured.items():
        spreads = [f"{measure} {Spread(**s):.1f}" for measure, s in one["ensembles"].items()]
        lines.append(
            f"{name}: {', '.join(spreads)}; all {one['all']['auc']:.1f}; every one of "
            f"{one['every']['count']} possible: AUC {one['every']['auc']:.1f}"
        )
    content: dict[str, Any] = {
        "commits": [one.commit for one in found],
        "seeds": [one.seed for one in found],
        "folders": folders,
        **measured,
    }
    if all(name.isdigit() for name in measured):  # epochs of a study of stops
        ranges = np.ptp([one["auc of each"] for one in measured.values()], axis=0).tolist()
        spread = Spread.of(ranges)
        content["range"] = {"each": ranges, **asdict(spread)}
        lines.append(f"AUC range over epochs: {spread:.1f}")
    return Study(f"ensembles-{found[0].section}-{found[0].row}-{folders}", lines, content)


def measure_ensembles(scores: Array, labels: Labels, folders: int) -> dict[str, Any]:
    """The measures in percent of each ensemble, and of all trainings in one."""
    each = [_measures(one, labels) for one in ensembles(scores, folders)]
    spreads = {name: Spread.of(one[name] for one in each) for name in SHOWN}
    return {
        "ensembles": {name: asdict(spread) for name, spread in spreads.items()},
        "auc of each": [one["auc"] for one in each],
        "all": _measures(scores.mean(0), labels),
        "every": every_ensemble(scores, labels, folders),
    }


def every_ensemble(scores: Array, labels: Labels, folders: int) -> dict[str, float]:
    """The mean AUC in percent of all that can be put together, which depends on no order; they
    share trainings, so they have no spread of their own."""
    chosen = list(combinations(range(len(scores)), folders))
    aucs = [100 * auc(scores[list(one)].mean(0), labels) for one in chosen]
    return {"auc": fmean(aucs), "count": len(aucs)}


def ensembles(scores: Array, folders: int) -> Array:
    """Mean scores of so many trainings at a time, neighbours by seed: no two ensembles share a
    training, and what is left over at the end is left out."""
    whole = len(scores) // folders * folders
    groups = scores[:whole].reshape(-1, folders, scores.shape[1])  # (ensembles, folders, n)
    return np.asarray(groups.mean(1))


def _measures(scores: Array, labels: Labels) -> dict[str, float]:
    metrics = evaluate(scores, labels, threshold=BEST_ACCURACY).model_dump()
    return {name: 100 * metrics[name]["value"] for name in SHOWN}


# Two rows


def study_rows(paths: Sequence[Path], beside: Sequence[Path]) -> Study:
    """How good is the mean score of two rows, seed by seed?

    Both score in units of healthy training images. The same seeds of both are taken."""
    one, other = ({found.seed: found for found in read_row(part)} for part in (paths, beside))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        raise DataError("The two rows have no seed in common; give results of the same seeds.")
    first = one[seeds[0]]
    if other[seeds[0]].fingerprint != first.fingerprint:
        raise DataError("The rows are of different splits; give two of one dataset.")
    together = [(one[seed].scores["final"] + other[seed].scores["final"]) / 2 for seed in seeds]
    measures = {"auc": Spread.of(100 * auc(scores, first.labels) for scores in together)}
    strata = read_record(Result, paths[0]).evaluations.images.strata.get("sharpness", ())
    within = [covariate(scores, first.labels, strata).adjusted for scores in together if strata]
    if adjusted := [100 * found.value for found in within if found is not None]:
        measures["adjusted"] = Spread.of(adjusted)
    return Study(
        f"rows-{first.section}-{first.row}-{other[seeds[0]].row}",
        [", ".join(f"{name} {spread:.1f}" for name, spread in measures.items())],
        {"seeds": seeds, **{name: asdict(spread) for name, spread in measures.items()}},
    )


# Site calibration


def study_site(paths: Sequence[Path]) -> Study:
    """What is a threshold worth at another site than the one whose images set it?"""
    commits = [one.commit for one in read_row(paths)]
    results = [read_record(Result, path) for path in paths]
    shares = {
        "validation images": [shares_elsewhere(result) for result in results],
        "half of the site's": [shares_at_site(result) for result in results],
    }
    content: dict[str, Any] = {"commits": commits, "rate": results[0].recipe.false_positive_rate}
    lines = []
    for threshold, pairs in shares.items():
        alarms, found = (
            Spread.of(100 * share for share in column) for column in zip(*pairs, strict=True)
        )
        content[threshold] = {"false_alarms": asdict(alarms), "found": asdict(found)}
        lines.append(f"{threshold}: {alarms:.1f} % false alarms, {found:.1f} % found")
    return Study("site-calibration", lines, content)


def shares_elsewhere(result: Result) -> tuple[float, float]:
    """Shares of false alarms and of anomalies found, by the threshold of healthy validation
    images, which are of the site of the training images."""
    metrics = result["final"].metrics["healthy"]
    return 1 - metrics.specificity.value, metrics.sensitivity.value


def shares_at_site(result: Result) -> tuple[float, float]:
    """The same by thresholds of half of the healthy test images: the mean over random halves."""
    labels, scores = result.evaluations.images.labels, result["final"].array
    healthy, anomalous = scores[labels == NORMAL], scores[labels == ANOMALOUS]
    rate, generator = result.recipe.false_positive_rate, np.random.default_rng(0)
    pairs = []
    for _ in range(HALVINGS):
        known, new = np.array_split(generator.permutation(healthy), 2)
        calibration = calibrate(known, known)
        flagged = (calibration.flagged(images, rate) for images in (new, anomalous))
        pairs.append(tuple(float(images.mean()) for images in flagged))
    alarms, found = zip(*pairs, strict=True)
    return fmean(alarms), fmean(found)


# Command line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    studies: dict[str, Callable[..., Study]] = {
        "agreement": study_agreement,
        "ensembles": study_ensembles,
        "rows": study_rows,
        "sharpness": study_sharpness,
        "site": study_site,
    }
    for name, study in studies.items():
        summary = (study.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("paths", type=Path, nargs="+", metavar="RESULT.json")
        command.add_argument("--out", type=Path, default=STUDIES, help="folder of the JSON file")
        command.set_defaults(study=study, parser=command)
    commands.choices["ensembles"].add_argument(
        "--folders", type=int, default=2, help="run folders in an ensemble (default 2)"
    )
    commands.choices["rows"].add_argument(
        "--beside",
        type=Path,
        nargs="+",
        required=True,
        metavar="RESULT.json",
        help="results of the other row",
    )
    commands.choices["sharpness"].add_argument(
        "--recipe",
        type=Path,
        default=Path("recipes/zhanglab.toml"),
        help="whose data the results are of (default recipes/zhanglab.toml)",
    )
    return parser.parse_args()


def main() -> None:
    options = vars(parse())
    study, out, parser = (options.pop(name) for name in ("study", "out", "parser"))
    try:
        made: Study = study(**options)
    except SquidError as error:
        parser.error(str(error))
    print("\n".join(made.lines))
    write(made, out / f"{made.name}.json")


def write(study: Study, path: Path) -> None:
    """With its provenance, which stays that of the first reading while the numbers are the same."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    content = json.loads(json.dumps(study.content))
    made = provenance("cpu")
    if {name: value for name, value in known.items() if name not in made} == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**made, **content}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
