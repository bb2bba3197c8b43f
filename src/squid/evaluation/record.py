"""What an evaluation and a benchmark job leave: typed records, whose JSON dumps are `metrics.json`
of a run folder and `result.json` of a job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from squid.config import Config, EvaluatedSplit, Selection, ThresholdKind, first_mistake
from squid.data.image_set import ANOMALOUS, ImageSet
from squid.errors import DataError
from squid.evaluation.confounds import Confounds, strata
from squid.evaluation.digits import DigitMeasures
from squid.evaluation.localisation import Localisation
from squid.evaluation.metrics import Estimate, GroupAuc, Metrics
from squid.evaluation.rsna_class import ClassAuc
from squid.recipe import Recipe

R = TypeVar("R", bound=Config)


class TestImages(Config):
    """The evaluated images, one entry each in the same order."""

    __test__ = False  # for pytest, which collects classes of such names

    name: tuple[str, ...]
    label: tuple[Annotated[int, Field(ge=0, le=1)], ...]
    finding: tuple[str, ...]
    """'|'-joined; '' where nothing is known."""
    strata: Mapping[str, tuple[str, ...]] = {}
    """The stratum of each image, by covariate; empty in results from before it was kept."""

    @classmethod
    def of(cls, images: ImageSet) -> "TestImages":
        return cls(
            name=images.names,
            label=tuple(images.labels.tolist()),
            finding=images.findings or ("",) * len(images),
            strata=strata(images),
        )

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array(self.label, dtype=np.int64)

    def truth(self, place: int) -> str:
        """What an image is known to show."""
        if self.label[place] != ANOMALOUS:
            return "normal"
        return self.finding[place].replace("|", ", ") or "anomalous"


class Evaluation(Config):
    """How well the scores of one selection tell anomalous from normal images."""

    selection: Selection
    epoch: int | None = None
    """The one that `best_epoch` chose; None where no single epoch gives the scores."""
    metrics: Mapping[ThresholdKind, Metrics]
    """By the kind of threshold; AUC and average precision do not depend on it."""
    findings: Mapping[str, GroupAuc] = {}
    """AUC of each finding that has enough images."""
    rsna_class: Mapping[str, ClassAuc] = {}
    """NIH: by the classes of the RSNA challenge, where enough test images have one."""
    confounds: Confounds | None = None
    """What the score follows besides disease; None in results from before it was measured."""
    localisation: Mapping[str, Localisation] = {}
    """Each heatmap and two priors, where boxes are known; for the final weights only."""
    noisy_auc: Estimate | None = None
    """AUC of the test images with added noise (`train.snapshot_noise`)."""
    digits: tuple[DigitMeasures, ...] = ()
    """DigitAnatomy: without and with noise."""
    scores: tuple[float, ...]
    """One per image."""

    @property
    def auc(self) -> float:
        return self.metrics["best_accuracy"].auc.value

    @property
    def array(self) -> NDArray[np.float64]:
        """(n,) scores."""
        return np.array(self.scores, dtype=np.float64)


class Evaluations(Config):
    """Every selection that a run offers, on one set of images."""

    method: str
    data: str
    seed: int
    fingerprint: str
    split: EvaluatedSplit = "test"
    images: TestImages
    by_selection: Mapping[Selection, Evaluation]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        images, found = self.images, self.by_selection
        columns: list[Sequence[Any]] = [images.label, images.finding, *images.strata.values()]
        columns += [one.scores for one in found.values()]
        if any(len(one) != len(images.name) for one in columns):
            raise ValueError("its columns do not have one value for each image.")
        if "final" not in found:
            raise ValueError("it has no selection 'final'.")
        return self

    @property
    def final(self) -> Evaluation:
        """That of the weights at the end of training, which every run has."""
        return self.by_selection["final"]


class Provenance(Config):
    """What a number needs beside it to be repeated."""

    command: str
    version: str
    commit: str | None
    torch: str
    device: str


class Cost(Config):
    """What a training and its scores take."""

    steps: int
    """Training steps of all stages; 0 for a method fitted in closed form."""
    published_steps: int
    """The same at the method's default schedule."""
    training_seconds: float
    scoring_seconds: float
    """Per image."""
    total_seconds: float
    parameters: int
    """Number of those that scoring needs."""
    run_bytes: int | None
    """Size of the run folder; None in results from before it was measured."""
    peak_bytes: int
    """Largest memory of the GPU where there is one, else of the process."""
    backbone: str | None = None
    """What gives pretrained features."""


class AucCurve(Config):
    """The test AUC over the snapshots of a training: it shows how steady scores are, and is never
    chosen by."""

    epochs: tuple[int, ...]
    auc: tuple[float, ...]
    """Values of each snapshot alone."""
    mean_auc: tuple[float, ...]
    """Values of the mean over all snapshots up to it."""
    late_range: Mapping[Selection, float | None]
    """Largest difference of AUCs over the last fifth of the epochs; None where the selection is
    none of the snapshots."""


class Place(Config):
    """Where a result stands in the tables of a benchmark."""

    section: str
    heading: str = ""
    """The section's name in tables; its own where it is empty."""
    row: str
    title: str
    """The row's name in tables."""
    axis: str = ""
    """The recipe key along which the section is a curve; '' where it is a table."""
    value: float | None = None
    """Where on that axis."""
    series: str = ""
    """The line of the curve."""


class Placed(Place):
    """What stands in one place or in several: sections share what has the same recipe."""

    also: tuple[Place, ...] = ()
    """The other places."""

    @property
    def places(self) -> tuple[Place, ...]:
        own = {name: getattr(self, name) for name in Place.model_fields}
        return (Place(**own), *self.also)

    def placed(self) -> Iterator[Self]:
        """A copy for each place, which stands there alone."""
        for place in self.places:
            yield self.model_copy(update={**dict(place), "also": ()})


class Result(Placed):
    """One row and seed of a benchmark."""

    recipe: SerializeAsAny[Recipe]
    provenance: Provenance
    cost: Cost
    evaluations: Evaluations
    curve: AucCurve | None = None
    """None where no snapshot was taken."""

    @property
    def seed(self) -> int:
        return self.recipe.seed

    def __getitem__(self, selection: Selection) -> Evaluation:
        return self.evaluations.by_selection[selection]


class TrivialResult(Config):
    """Trivial scores of a section's test images, at the threshold of best accuracy."""

    section: str
    fingerprint: str
    trivial: Mapping[str, Metrics]
    adjusted: Mapping[str, Estimate]
    """AUC adjusted for the view or else for sharpness, of each that has one."""


def read_keys(path: Path) -> set[str]:
    """The keys of a JSON file; empty where it holds no table."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path} cannot be read as JSON.") from None
    return set(found) if isinstance(found, dict) else set()


def read_record(kind: type[R], path: Path) -> R:
    """A record from its JSON file; one sentence says what is wrong with another file."""
    try:
        text = path.read_text(encoding="utf-8")
        return kind.model_validate_json(text)
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path} cannot be read.") from None
    except ValidationError as error:
        reason = first_mistake(error).removesuffix(".")
        raise DataError(
            f"{path} is damaged or of another kind ({reason}); make it anew, by squid evaluate or "
            "squid benchmark."
        ) from None
