import pytest
import torch
import torch.nn.functional as F
from torch import nn

from squid.nn.conv import (
    BatchNorm,
    doubled_by_slices,
    normalised_each,
    to_one_channel,
    upsample2,
    weighed_channels,
)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 5, 1, 1), (3, 2, 5, 7)])
def test_slices_are_the_bilinear_doubling(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(doubled_by_slices(x), expected, rtol=1e-14, atol=1e-14)
    upstream = torch.randn_like(expected)
    (ours,) = torch.autograd.grad(doubled_by_slices(x), x, upstream)
    (theirs,) = torch.autograd.grad(expected, x, upstream)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("double", [upsample2, doubled_by_slices])
def test_doubling_keeps_channels_last(double):
    x = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last)
    assert double(x).is_contiguous(memory_format=torch.channels_last)


class TwinRanks:
    """A second rank that holds the given images; what it would contribute is computed here."""

    alone = False
    size = 2

    def __init__(self, others: torch.Tensor) -> None:
        self.others = others

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        dims = (0, 2, 3)
        theirs = torch.stack((self.others.mean(dims), self.others.square().mean(dims)))
        return (x + theirs) / 2

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, x))


def test_batch_norm_over_ranks_equals_one_joint_batch():
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    joint, ours = nn.BatchNorm2d(3).double(), BatchNorm(3).double()
    ours.load_state_dict(joint.state_dict())
    ours.ranks = TwinRanks(x[3:])
    expected, actual = joint(x)[:3], ours(x[:3])
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, joint.state_dict()[key], rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, x, upstream)[0],
        torch.autograd.grad(expected, x, upstream)[0],
        rtol=1e-10,
        atol=1e-10,
    )


def test_image_statistics_are_those_of_a_batch_of_one_and_leave_no_trace():
    norm = BatchNorm(3)
    nn.init.normal_(norm.weight)
    x = torch.randn(4, 3, 5, 5)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    together = norm(x, "image")
    for key, value in norm.state_dict().items():
        assert torch.equal(value, before[key])
    alone = torch.cat([norm(image[None], "batch") for image in x])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalisation_of_each_image_written_out_is_the_librarys(dtype: torch.dtype):
    x = (3 * torch.randn(4, 3, 5, 7) + torch.randn(4, 3, 1, 1)).to(dtype)
    weight, bias = torch.randn(2, 3)
    expected = F.instance_norm(x.float(), weight=weight, bias=bias).to(dtype)
    found = normalised_each(x.to(memory_format=torch.channels_last), weight, bias, eps=1e-5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected)


def test_mode_decides_between_batch_and_running_statistics():
    norm = BatchNorm(2)
    x = torch.randn(4, 2, 3, 3) + 5
    assert norm.train()(x).mean().abs() < 1e-5
    assert norm.eval()(x).mean() > 1


def test_halves_are_two_batches_in_one_pass_compiled_or_not():
    x = torch.randn(6, 3, 4, 4) * torch.tensor([1.0, 5.0]).repeat_interleave(3)[:, None, None, None]
    separate, joined, compiled = (BatchNorm(3).train() for _ in range(3))
    expected = torch.cat([separate(half) for half in x.chunk(2)])
    together = torch.compile(lambda x: compiled(x, "halves"), backend="aot_eager")
    for norm, found in ((joined, joined(x, "halves")), (compiled, together(x))):
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(norm.running_mean, separate.running_mean)
        torch.testing.assert_close(norm.running_var, separate.running_var)


def test_one_channel_as_a_sum_is_the_convolution():
    conv = nn.Conv2d(5, 1, 1)
    x = torch.randn(2, 5, 3, 4)
    torch.testing.assert_close(weighed_channels(conv, x), conv(x))
    assert to_one_channel(conv.bfloat16(), x.bfloat16()).dtype == torch.float32


def test_torchs_own_layer_is_loaded_without_its_count():
    theirs, ours = nn.BatchNorm2d(3), BatchNorm(3)
    theirs(torch.randn(4, 3, 2, 2))
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert "num_batches_tracked" not in ours.state_dict()
    again = BatchNorm(3)
    again.load_state_dict(dict(ours.state_dict()))  # without torch's metadata
    assert torch.equal(again.running_var, theirs.running_var)
