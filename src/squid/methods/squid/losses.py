"""The losses of SQUID's generators (sec. 3.5) that torch does not have; the discriminator's is in
`nn/discriminator.py`."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from squid.nn.conv import at_least_float32


def distillation(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    *,
    learner: Literal["both", "student", "teacher"] = "both",
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Squared distance of the features of all levels; `sum` is per image, `mean` per value of a
    level."""
    # The detached side is a target only.
    student = [x.detach() for x in student] if learner == "teacher" else student
    teacher = [x.detach() for x in teacher] if learner == "student" else teacher
    levels = zip(student, teacher, strict=True)
    total = torch.stack(
        [F.mse_loss(ours, theirs, reduction=reduction) for ours, theirs in levels]
    ).sum()
    images = student[-1].shape[0]  # earlier levels still hold patches
    return total / images if reduction == "sum" else total


def fooling(fake: Tensor, kind: Literal["saturating", "non_saturating"]) -> Tensor:
    """The generator's adversarial loss over logits (b, 1): log(1 - D), or -log D, on average."""
    fake = at_least_float32(fake)
    return -F.softplus(fake).mean() if kind == "saturating" else F.softplus(-fake).mean()
