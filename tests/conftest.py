"""What tests share: the folder of reference material, and one thread so that results do not depend
on the machine."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference material (golden cases, data, weights), kept outside the project."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("SQUID_SHARED", default))
    if not folder.is_dir():
        pytest.skip(f"no reference material at {folder} (set SQUID_SHARED)")
    return folder
