"""Golden cases: numbers that the authors' modules produced."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

Case = dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def golden(shared: Callable[..., Path]) -> Callable[[str], Case]:
    def load(name: str) -> Case:
        with np.load(shared("golden", f"{name}.npz")) as file:
            return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}

    return load
