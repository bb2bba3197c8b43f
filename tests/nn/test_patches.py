import torch

from squid.nn.patches import merge, split


def test_golden_windows(golden):
    case = golden("windows")
    torch.testing.assert_close(split(case["x"], 2), case["patches"], rtol=0, atol=0)
    torch.testing.assert_close(merge(case["patches"], 2), case["reversed"], rtol=0, atol=0)


def test_merge_inverts_split_on_any_grid():
    x = torch.randn(2, 3, 12, 12)
    for grid in (1, 2, 3, 4):
        assert torch.equal(merge(split(x, grid), grid), x)


def test_channels_last_survives():
    x = torch.randn(2, 8, 8, 8).to(memory_format=torch.channels_last)
    patches = split(x, 2)
    assert patches.is_contiguous(memory_format=torch.channels_last)
    assert merge(patches, 2).is_contiguous(memory_format=torch.channels_last)
