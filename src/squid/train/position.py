"""Where a training stands, and whether a saved state stands in this training at all."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from squid.errors import RunError
from squid.methods.base import Stage
from squid.train.monitor import State


@dataclass(frozen=True)
class Position:
    """All that resuming needs besides weights and optimisers."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    totals: dict[str, float] = field(default_factory=dict)


def position_of(state: State, stages: Sequence[Stage], images: int) -> Position:
    """The position of a state; an error where a training with so many images has no such one. It
    would else count as finished."""
    number, epoch, step = state["stage"], state["epoch"], state["step"]
    fits = False
    if number < len(stages):
        stage = stages[number]
        # After the last epoch there is no further step.
        last = 0 if epoch == stage.epochs_over(images) else stage.steps_per_epoch(images) - 1
        optimizers = len(state["optimizers"]) == len(stage.objectives)
        fits = epoch <= stage.epochs_over(images) and step <= last and optimizers
    if not fits:
        raise RunError(
            f"The saved state (stage {number + 1}, epoch {epoch + 1}, step {step + 1}) does not "
            "belong to this recipe and its images; restore them, or train anew with --overwrite."
        )
    return Position(number, epoch, step, dict(state["totals"]))
