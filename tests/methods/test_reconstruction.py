"""What the contract does not say of the methods that redraw images."""

import pytest
import torch
from torch.testing import assert_close

from squid.config import parse
from squid.errors import ConfigError
from squid.methods import METHODS
from squid.methods.base import Batch
from squid.methods.mnad import Mnad, MnadConfig
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
        differs = method.redraw(images) != method.redraw(changed)
    assert differs[:, :, 8:, :8].any()
    assert not differs[:, :, :8].any()
    assert not differs[:, :, 8:, 8:].any()


def test_mnad_measures_its_score_on_normal_images():
    torch.manual_seed(0)
    method = Mnad(MnadConfig(size=16, channels=(4, 4, 8))).eval()
    images = torch.rand(6, 1, 16, 16)
    with torch.no_grad():
        method.finalize(Batch(part, torch.arange(3), {}) for part in images.split(3))
        scores = method.score(images)
        clean = method.score(method.reconstruct(images[:1]))
    assert scores.min() >= 0.0
    assert scores.max() <= 1.0
    assert clean.isfinite().all()


@pytest.mark.parametrize(
    ("name", "size"), [("auto_encoder", 72), ("vae", 0), ("patch_memae", 48), ("mnad", 36)]
)
def test_sizes_that_cannot_be_halved_are_refused(name, size):
    with pytest.raises(ConfigError, match=f"size {size} must be a multiple"):
        parse(METHODS[name].Config, {"size": size}, "a recipe")
