"""What a table says of a method beside how well it detects."""

from typing import Any

from squid.methods import build
from squid.methods.base import Method, MethodConfig, Stage

SCHEDULE = ("epochs", "steps", "encoder_steps", "batch_size")
"""The fields that a benchmark may shorten."""


def planned_steps(config: MethodConfig, images: int) -> int:
    """Training steps of all stages; none for a method fitted in closed form."""
    return sum(_steps(stage, images) for stage in build(config).stages())


def published_steps(config: MethodConfig, images: int) -> int:
    """The same at the schedule of the method's defaults."""
    fields = type(config).model_fields
    defaults = {name: fields[name].default for name in SCHEDULE if name in fields}
    return planned_steps(config.model_copy(update=defaults), images)


def _steps(stage: Stage, images: int) -> int:
    return stage.steps or stage.epochs_over(images) * stage.steps_per_epoch(images)


def parameters(method: Method) -> int:
    """Of what scoring needs."""
    return sum(
        values.numel()
        for name, values in method.named_parameters()
        if not name.startswith(method.training_only)
    )


def backbone(config: MethodConfig) -> str | None:
    """What gives the features, and whether anything was learned by it beforehand."""
    settings: Any = getattr(config, "backbone", None)
    if settings is None:
        return None
    source = "random backbone" if settings.weights == "random" else "pretrained"
    return f"{settings.name}, {source}"
