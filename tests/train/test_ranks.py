"""Two processes that train together are one process with the joint batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

JOINT = Path(__file__).with_name("joint.py")


def train_in(folder, processes, *more):
    command = [sys.executable, str(JOINT), str(folder), str(processes), *map(str, more)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{processes}-{rank}.pt") for rank in range(processes)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train_in(tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return train_in(tmp_path_factory.mktemp("together"), 2)


def test_both_ranks_hold_the_same_queues_and_weights(together):
    first, second = (result["weights"] for result in together)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_losses_are_those_of_the_joint_batch(alone, together):
    assert len(alone["losses"]) == 5  # of 4 steps each
    for result in together:
        for joint, shared in zip(alone["losses"], result["losses"], strict=True):
            assert shared == pytest.approx(joint, rel=1e-9)


def test_the_queue_is_filled_as_by_one_process(alone, together):
    expected, found = alone["weights"], together[0]["weights"]
    name = "inpainting.memory"
    assert torch.equal(found[f"{name}.pointer"], expected[f"{name}.pointer"])
    torch.testing.assert_close(
        found[f"{name}.slots"], expected[f"{name}.slots"], rtol=1e-6, atol=1e-9
    )


def test_statistics_are_those_of_the_joint_batch(alone, together):
    expected, found = alone["weights"], together[0]["weights"]
    names = [name for name in expected if "running_" in name]
    assert names
    for name in names:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-9)


def test_all_stop_when_one_is_interrupted(tmp_path):
    results = train_in(tmp_path, 2, 3)
    assert [result["interrupted"] for result in results] == [True, True]
    assert results[0]["saved"] == results[1]["saved"] == [(1, 0)]
