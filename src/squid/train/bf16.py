"""bf16 copies of convolution weights, with which a mixed-precision step computes.

Autocast would cast every weight in every pass, and every gradient back, in a small kernel each.
`Bf16Weights` holds the same numbers, all cast at once after an update; the float32 weights learn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Bf16Weights:
    """The copies of a method. They take the place of the float32 weights during a step only."""

    def __init__(self, method: nn.Module) -> None:
        kinds = (nn.Conv2d, nn.ConvTranspose2d)
        # Linear layers are few: autocast casts their weights.
        convolutions = [module for module in method.modules() if isinstance(module, kinds)]
        self._places = [
            (module, name, parameter)
            for module in convolutions
            for name, parameter in module.named_parameters(recurse=False)
        ]
        self._copies = {
            p: nn.Parameter(p.detach().to(torch.bfloat16), requires_grad=p.requires_grad)
            for _, _, p in self._places
        }

    def of(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """The copies of `parameters`, or themselves where there is no copy."""
        return [self._copies.get(p, p) for p in parameters]

    @torch.no_grad()
    def refresh(self, parameters: Sequence[nn.Parameter] | None = None) -> None:
        """Copy the float32 weights again: those given, or all."""
        # One kernel for all copies; the parameters of an objective are not all convolutions.
        changed = [p for p in (parameters or self._copies) if p in self._copies]
        if changed:
            torch._foreach_copy_([self._copies[p] for p in changed], list[Tensor](changed))

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        # Written directly: `setattr` would check and register each parameter again, twice a step.
        for module, name, parameter in self._places:
            module._parameters[name] = self._copies[parameter]
        try:
            yield
        finally:
            for module, name, parameter in self._places:
                module._parameters[name] = parameter


@torch.no_grad()
def round_to_bf16(method: nn.Module) -> None:
    """Round the weights at the end of a bf16 training: its products used bf16 weights, and only the
    optimiser needed the further digits. A run folder then takes half the space."""
    kinds = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
    for module in method.modules():
        if isinstance(module, kinds):
            module.weight.copy_(module.weight.bfloat16())


def widened(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Gradients in float32, those of the bf16 copies cast all at once."""
    # Again one kernel; float32 gradients are passed through in their places.
    narrow = [g for g in gradients if g.dtype == torch.bfloat16]
    wide = [torch.empty_like(g, dtype=torch.float32) for g in narrow]
    if narrow:
        torch._foreach_copy_(wide, narrow)
    found = iter(wide)
    return [next(found) if g.dtype == torch.bfloat16 else g for g in gradients]
