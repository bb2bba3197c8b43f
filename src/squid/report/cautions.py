"""What a reader of a report must not overlook."""

from squid.data.image_set import Splits
from squid.evaluation.percent import percent
from squid.evaluation.record import Evaluation, Evaluations

CHANCE = 0.5
"""AUC of guessing."""
FEW = 20
"""Images of a class below which its shares say little."""


def cautions(record: Evaluations | None, splits: Splits | str | None) -> list[str]:
    """One text for each thing that makes a report unfit to rely on; most reports have none.

    `splits` are the images, or why they could not be read; None where none are shown.
    """
    found = [splits] if isinstance(splits, str) else []
    return found if record is None else found + _of_numbers(record.final)


def _of_numbers(final: Evaluation) -> list[str]:
    found = []
    if final.auc < CHANCE:
        found.append(
            f"The AUC is {percent(final.auc)}: worse than guessing. Healthy images score higher "
            "than anomalous ones, so the score follows something else than disease; see 'What "
            "this score follows'. Do not use this detector."
        )
    metrics = final.metrics["healthy"]
    for count, name in ((metrics.normal, "normal"), (metrics.anomalous, "anomalous")):
        if count < FEW:
            found.append(
                f"Only {count} {name} test images: every number here may be far from what more "
                "images would give."
            )
    return found
