"""Adam in one pass over memory, for compiled steps.

torch's fused Adam takes float32 gradients and knows nothing of bf16 copies of weights: with the
casts before and after it, tens of millions of numbers are read and written three times.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from squid.train.engine import compile_fused


class _Part(NamedTuple):
    """Parameters alike in precision, so that one kernel takes them all."""

    weights: list[Tensor]
    gradients: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    copies: list[Tensor]
    """One for each weight, or none at all."""


class FusedAdam(torch.optim.Adam):
    """torch's Adam in its settings, state and results, with `step_from` in place of `step`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings, capturable=True)
        self._update = compile_fused(_update)

    @torch.no_grad()
    def step_from(self, gradients: Sequence[Tensor], copies: Sequence[Tensor | None]) -> None:
        """Update by gradients in any precision, and the bf16 copies of weights that have one."""
        (group,) = self.param_groups
        count = self._count(group["params"])
        # Lists of one kernel must be alike: parameters with a bf16 copy, and those without.
        together = list(zip(group["params"], gradients, copies, strict=True))
        copied = [one for one in together if one[2] is not None]
        alone = [one for one in together if one[2] is None]
        parts = [self._part(some) for some in (copied, alone) if some]
        settings = group["betas"], group["eps"], group["weight_decay"]
        self._update(parts, count, group["lr"], *settings)

    def _count(self, parameters: Sequence[Tensor]) -> Tensor:
        """() updates so far: one tensor for all parameters, although a state may be loaded with one
        for each."""
        first = self.state[parameters[0]]
        count: Tensor = first.get("step", torch.zeros((), device=parameters[0].device))
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            state["step"] = count
        return count

    def _part(self, together: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> _Part:
        states = [self.state[parameter] for parameter, _, _ in together]
        return _Part(
            weights=[parameter.detach() for parameter, _, _ in together],
            gradients=[gradient for _, gradient, _ in together],
            means=[state["exp_avg"] for state in states],
            squares=[state["exp_avg_sq"] for state in states],
            copies=[copy.detach() for _, _, copy in together if copy is not None],
        )


def _update(
    parts: Sequence[_Part],
    count: Tensor,
    rate: Tensor,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """Adam in foreach functions, of which the compiler makes one kernel."""
    count.add_(1)
    # Bias corrections of both moments (Kingma & Ba, 2015, algorithm 1), as torch applies them.
    length = rate / (1 - betas[0] ** count)
    spread = (1 - betas[1] ** count).sqrt()
    for weights, gradients, means, squares, copies in parts:
        wide = [gradient.float() for gradient in gradients]
        # L2 in the gradient, as torch's Adam has it, not the decoupled decay of AdamW.
        if decay:
            wide = list(torch._foreach_add(wide, weights, alpha=decay))
        torch._foreach_lerp_(means, wide, 1 - betas[0])
        torch._foreach_mul_(squares, betas[1])
        torch._foreach_addcmul_(squares, wide, wide, 1 - betas[1])
        divisors = torch._foreach_sqrt(squares)
        torch._foreach_div_(divisors, spread)
        torch._foreach_add_(divisors, eps)
        torch._foreach_div_(divisors, length)
        torch._foreach_addcdiv_(weights, means, divisors, -1.0)
        # In the same kernel, which has the new weights at hand.
        if copies:
            torch._foreach_copy_(copies, weights)
