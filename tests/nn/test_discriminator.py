import pytest
import torch

from squid.convert import discriminator_keys
from squid.nn.discriminator import Discriminator

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def case(golden):
    return golden("discriminator")


@pytest.fixture
def discriminator(case):
    module = Discriminator(128)
    state = {k.removeprefix("sd/"): v for k, v in case.items() if k.startswith("sd/")}
    keys = discriminator_keys(depth=5)
    kept = {key: value for key, value in state.items() if "num_batches_tracked" not in key}
    assert keys.keys() == kept.keys()
    module.load_state_dict({keys[key]: value for key, value in kept.items()})
    return module


def test_golden_running_statistics(discriminator, case):
    logits = discriminator(case["x"], "running")
    torch.testing.assert_close(logits, case["eval_logits"], **CLOSE)
    torch.testing.assert_close(discriminator.eval()(case["x"]), logits, rtol=0, atol=0)


def test_golden_batch_statistics(discriminator, case):
    logits = discriminator(case["x"], "batch")
    torch.testing.assert_close(logits, case["train_batch4_logits"], **CLOSE)
    keys, state = discriminator_keys(depth=5), discriminator.state_dict()
    after = {k.split("/")[1]: v for k, v in case.items() if k.startswith("train_batch4_after")}
    assert len(after) == 8
    for key, value in after.items():
        torch.testing.assert_close(state[keys[key]], value, **CLOSE)


def test_golden_image_statistics_are_the_official_batch_of_one(discriminator, case):
    expected = case["official_score_batch1_trainmode_logits"]
    torch.testing.assert_close(discriminator(case["x"], "image"), expected, **CLOSE)
    torch.testing.assert_close(discriminator(case["x"][1:2], "image"), expected[1:2], **CLOSE)


@pytest.mark.parametrize(("size", "cells"), [(128, 4), (96, 3), (64, 4), (224, 4), (28, 4)])
def test_levels_halve_the_image_to_at_most_four_cells(size, cells):
    discriminator = Discriminator(size, width=2)
    images = torch.rand(2, 1, size, size)
    assert discriminator.features(images).shape[2:] == (cells, cells)
    assert discriminator(images).shape == (2, 1)


def test_logits_are_float32_under_autocast():
    discriminator = Discriminator(16, width=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert discriminator(torch.rand(2, 1, 16, 16), "image").dtype == torch.float32
    assert discriminator.double()(torch.rand(2, 1, 16, 16).double()).dtype == torch.float64
