"""RSNA at 64 pixels, validation images: the small default's AUC, and where its heatmap points."""

from collections.abc import Iterator
from pathlib import Path

from squid.evaluation.localisation import PRIORS, Localisation
from squid.evaluation.metrics import Estimate
from squid.evaluation.record import Evaluations, Result, read_record

STUDIES = Path(__file__).parents[2] / "benchmarks" / "results" / "studies"
FILES = {
    "published": STUDIES / "rsna-validation-small-seed-1.json",
    "brighter": STUDIES / "rsna-validation-small-brighter-seed-1.json",
    "smoothed": STUDIES / "rsna-validation-small-smoothed-seed-1.json",
    "lungs": STUDIES / "rsna-validation-small-lungs-seed-1.json",
}
"""AE-U's residuals as published; smoothed, of brighter pixels alone and of both signs; and within
the lungs, with lesions centred there."""


TEST = STUDIES / "rsna-test-small-lungs-seed-1.json"
"""The same training as the last one, on test images."""


def numbers() -> dict[str, str]:
    """Name -> text, as `docs/results.template` names them."""
    return dict(_numbers())


def _numbers() -> Iterator[tuple[str, str]]:
    for name, path in FILES.items():
        result = read_record(Result, path)
        final = result["final"]
        assert final.confounds is not None
        adjusted = final.confounds.covariates["sharpness"].adjusted
        assert adjusted is not None
        yield f"small {name} auc", _interval(final.metrics["healthy"].auc)
        yield f"small {name} adjusted", f"{100 * adjusted.value:.1f}"
        yield from _of_map(f"small {name}", final.localisation["method"])
        yield f"small {name} minutes", f"{result.cost.training_seconds / 60:.0f}"
    # The priors know no image, so they are the same for both.
    for prior in PRIORS:
        yield from _of_map(f"small {prior}", final.localisation[prior])
    test = read_record(Evaluations, TEST).final
    metrics = test.metrics["healthy"]
    yield "small test auc", _interval(metrics.auc)
    yield "small test alarms", f"{100 * (1 - metrics.specificity.value):.1f}"
    yield "small test found", f"{100 * metrics.sensitivity.value:.1f}"
    for kind in ("method", "mean box"):
        yield from _of_map(f"small test {kind}", test.localisation[kind])


def _of_map(name: str, found: Localisation) -> Iterator[tuple[str, str]]:
    yield f"{name} hits", _interval(found.pointing)
    yield f"{name} pixels", f"{100 * found.auroc.value:.1f}"
    yield f"{name} images", str(found.images)


def _interval(found: Estimate) -> str:
    value, low, high = (100 * one for one in (found.value, found.low, found.high))
    return f"{value:.1f} ({low:.1f} to {high:.1f})"
