"""The number of a method's parameters, found without building it.

A recipe may come from someone else, and a few digits of it could ask for more memory than there is.
"""

import torch

from squid.errors import ConfigError
from squid.methods.base import Method, MethodConfig

MAX_PARAMETERS = 10**9
"""4 GB in float32; a training needs four times as much. SQUID has 47 million."""


def count_parameters(config: MethodConfig, method: type[Method]) -> int:
    """Parameters and buffers of one member, from shapes alone: no memory is taken for them."""
    try:
        # A method may draw random numbers for itself, which must not change those of its weights.
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            return sum(values.numel() for values in method(config).state_dict().values())
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" in str(error).lower():
            raise excess(config) from None
        # Some networks of timm need values while they are built; no recipe sets their size.
        if "meta tensor" in str(error):
            return 0
        raise


def excess(config: MethodConfig, count: int | None = None) -> ConfigError:
    """The error for a method that is too large."""
    number = "too many" if count is None else f"{count:,}"
    return ConfigError(
        f"The method '{config.name}' would have {number} parameters; choose smaller sizes or fewer "
        f"members, for at most {MAX_PARAMETERS:,}."
    )
