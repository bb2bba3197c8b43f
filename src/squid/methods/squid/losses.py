"""The losses of SQUID's generators (sec. 3.5) that torch does not have; the discriminator's is in
`nn/discriminator.py`."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from squid.methods.squid.config import SquidConfig
from squid.nn.conv import at_least_float32
from squid.nn.uncertainty import gaussian_terms

Maps = list[Tensor]
TeacherPass = tuple[Tensor, Maps]
"""The teacher's reconstruction, and its features of each level."""


class StudentPass(NamedTuple):
    """Results of encoder and student; the teacher starts from the encoder's features."""

    reconstruction: Tensor
    """(b, 1, h, w) in [0, 1]."""
    features: Maps
    """One map per level, for distillation."""
    log_variance: Tensor | None
    """(b, 1, h, w), with `uncertainty`."""
    bottleneck: Tensor
    skips: Maps


def reconstruction_terms(
    config: SquidConfig, student: StudentPass, teacher: TeacherPass | None, images: Tensor
) -> dict[str, Tensor]:
    """The losses that need no discriminator."""
    weights = config.loss_weights
    # The student's squared error; where it predicts a variance, also the error in its units.
    terms = {"student": weights.student * F.mse_loss(student.reconstruction, images)}
    if student.log_variance is not None:
        both = gaussian_terms(images, student.reconstruction, student.log_variance)
        terms["uncertainty"] = weights.uncertainty * torch.stack(list(both.values())).sum()
    # The teacher learns to reconstruct without memories, and the student to have its features.
    if teacher is not None:
        image, features = teacher
        terms["teacher"] = weights.teacher * F.mse_loss(image, images)
        terms["distillation"] = weights.distillation * distillation(
            student.features,
            features,
            learner=config.distillation_learner,
            reduction=config.distillation_reduction,
        )
    return terms


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
