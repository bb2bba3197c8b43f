"""Methods that reconstruct images, beyond what the contract tests."""

import pytest
import torch
from torch.testing import assert_close

from squid.config import parse
from squid.errors import ConfigError
from squid.methods import METHODS
from squid.methods.patch_memae import PatchMemAE, PatchMemAEConfig
from squid.methods.vae import divergence_from_standard


def test_divergence_of_the_standard_normal_is_zero():
    zeros = torch.zeros(3, 4)
    assert divergence_from_standard(zeros, zeros) == 0
    assert_close(divergence_from_standard(zeros + 2, zeros), torch.tensor(2.0))


def test_positions_share_nothing():
    torch.manual_seed(0)
    method = PatchMemAE(PatchMemAEConfig(size=16, channels=(4, 4), slots=8)).eval()
    images = torch.rand(2, 1, 16, 16)
    changed = images.clone()
    changed[:, :, 8:, :8] = 0.9
    with torch.no_grad():
        differs = method.reconstruct_signed(images) != method.reconstruct_signed(changed)
    assert differs[:, :, 8:, :8].any()
    assert not differs[:, :, :8].any()
    assert not differs[:, :, 8:, 8:].any()


@pytest.mark.parametrize(
    ("name", "size"), [("auto_encoder", 72), ("vae", 40), ("patch_memae", 48), ("mnad", 36)]
)
def test_sizes_that_cannot_be_halved_are_refused(name, size):
    with pytest.raises(ConfigError, match=f"size {size} must be a multiple"):
        parse(METHODS[name].Config, {"size": size}, "a recipe")
