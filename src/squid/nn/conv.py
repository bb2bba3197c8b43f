"""Convolutional building blocks: batch normalisation over several ranks, the residual block,
doubling of maps."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from squid.nn.ranks import ALONE, Ranks

Statistics = Literal["batch", "halves", "running", "image"]
"""The mean and variance that normalise a map: this batch's, those of each half of the batch (two
batches in one pass), the tracked ones, or each image's own."""


def at_least_float32(x: Tensor) -> Tensor:
    """Raises half precision to float32; leaves float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation whose statistics may span several ranks, or be those of each image."""

    ranks: Ranks = ALONE

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.num_batches_tracked = None  # never read, and counting costs a kernel

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *how: Any, **more: Any
    ) -> None:
        """Also loads the state of torch's own layers, without their count."""
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        # Not torch's own, which puts a count back into files that name no version.
        nn.Module._load_from_state_dict(self, state_dict, prefix, *how, **more)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """Without `statistics` the mode decides: the batch's in training, the tracked ones in
        evaluation."""
        statistics = statistics or ("batch" if self.training else "running")
        if statistics == "image":
            normalise = normalised_each if x.is_cuda else F.instance_norm
            return normalise(x, weight=self.weight, bias=self.bias, eps=self.eps)
        if statistics == "halves":
            return self._normalise_halves(x)
        if statistics == "batch" and not self.ranks.alone:
            return self._normalise_jointly(x)
        # Scoring changes no state: in evaluation a batch's own statistics are not tracked.
        tracks = self.training or statistics == "running"
        return F.batch_norm(
            x,
            self.running_mean if tracks else None,
            self.running_var if tracks else None,
            self.weight,
            self.bias,
            training=statistics == "batch",
            momentum=self.momentum or 0.0,
            eps=self.eps,
        )

    def _normalise_halves(self, x: Tensor) -> Tensor:
        """Equals two passes with "batch", the first half first."""
        if not torch.compiler.is_compiling() or not self.ranks.alone:
            return torch.cat([self(half, "batch") for half in x.chunk(2)])
        # Written out, a compiler fuses both passes.
        halves = rearrange(at_least_float32(x), "(two b) c h w -> two b c h w", two=2)
        variance, mean = torch.var_mean(halves, (1, 3, 4), correction=0)  # (2, c)
        for half in range(2):
            count = x.numel() // x.shape[1] // 2
            self._track(mean[half].detach(), variance[half].detach(), count)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale  # (2, c)
        normal: Tensor = halves * scale[:, None, :, None, None] + shift[:, None, :, None, None]
        return normal.flatten(0, 1).to(x.dtype)

    def _normalise_jointly(self, x: Tensor) -> Tensor:
        """Treats the images of all ranks, in equal shares, as one batch with all its gradients."""
        # Averages of means and of squares over ranks give the joint variance in one exchange.
        wide = at_least_float32(x)
        local = torch.stack((wide.mean((0, 2, 3)), wide.square().mean((0, 2, 3))))  # (2, c)
        mean, square = self.ranks.mean(local).unbind()
        # Rounding can leave a difference just below zero where a channel is nearly constant.
        variance = (square - mean.square()).clamp_min(0)
        count = self.ranks.size * x.numel() // x.shape[1]
        self._track(mean.detach(), variance.detach(), count)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (wide * scale[:, None, None] + shift[:, None, None]).to(x.dtype)

    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        momentum = self.momentum or 0.0
        self.running_mean.lerp_(mean, momentum)
        # As torch does, the unbiased variance is tracked, though the biased one normalises.
        self.running_var.lerp_(variance * (count / (count - 1)), momentum)


def normalised_each(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`F.instance_norm` written out. On a GPU the library's kernel first copies channels-last maps,
    which doubles the time of a discriminator."""
    wide = at_least_float32(x)
    variance, mean = torch.var_mean(wide, (2, 3), correction=0, keepdim=True)  # (b, c, 1, 1)
    scale = weight[:, None, None] * torch.rsqrt(variance + eps)
    # One fused multiply-add: x * scale + (bias - mean * scale).
    return torch.addcmul(bias[:, None, None] - mean * scale, wide, scale).to(x.dtype)


def conv3x3(inputs: int, outputs: int, stride: int = 1, *, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=bias)


class ResidualBlock(nn.Module):
    """Three 3x3 convolutions; the last two are a residual branch."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, *, bias: bool = True) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            conv3x3(inputs, outputs, stride, bias=bias), BatchNorm(outputs), nn.ReLU()
        )
        self.branch = nn.Sequential(
            conv3x3(outputs, outputs, bias=bias),
            BatchNorm(outputs),
            nn.ReLU(),
            conv3x3(outputs, outputs, bias=bias),
            BatchNorm(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return F.relu(x + self.branch(x))


def to_one_channel(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """A 1x1 convolution (b, c, h, w) -> (b, 1, h, w), at least float32.

    cuDNN has no fast kernel for a single channel, so compiled GPU code uses a sum that it fuses.
    """
    if x.is_cpu or not torch.compiler.is_compiling():
        return at_least_float32(conv(x))
    return weighed_channels(conv, x)


def weighed_channels(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`to_one_channel` as products and a sum."""
    assert conv.bias is not None
    return (at_least_float32(x) * conv.weight[0]).sum(1, keepdim=True) + conv.bias


def upsample2(x: Tensor) -> Tensor:
    """Bilinear doubling of height and width, corners not aligned: (b, c, h, w) -> (b, c, 2h, 2w).

    The library's kernel serves the CPU, ONNX and scoring. In training on a GPU it was the slowest
    kernel of a step, so slices replace it there.
    """
    compiled = torch.compiler.is_compiling() and not torch.onnx.is_in_onnx_export()
    if not compiled and (x.is_cpu or not torch.is_grad_enabled()):
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    return doubled_by_slices(x)


def doubled_by_slices(x: Tensor) -> Tensor:
    """`upsample2` as weighted shifted slices, which compilers fuse; written channels-last."""
    return _double(_double(x.movedim(1, -1), 1), 2).movedim(-1, 1)


def _double(x: Tensor, dim: int) -> Tensor:
    """Each cell becomes two, a quarter of the way towards either neighbour; the border is
    repeated."""
    # Slices with the first or the last cell repeated, so that the border needs no case of its own.
    last = x.shape[dim] - 1
    before = torch.cat((x.narrow(dim, 0, 1), x.narrow(dim, 0, last)), dim)
    after = torch.cat((x.narrow(dim, 1, last), x.narrow(dim, last, 1)), dim)
    pairs = torch.stack((0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after), dim + 1)
    return pairs.flatten(dim, dim + 1)
