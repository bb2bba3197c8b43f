"""The decoder of student and teacher, and the memories between its levels (SQUID, sec. 3.1 and
appendix A)."""

from collections.abc import Sequence
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from squid.nn.conv import ResidualBlock, to_one_channel, upsample2
from squid.nn.inpainting import ShortcutKind, shortcut
from squid.nn.memory import Memory, MemoryQueue
from squid.nn.patches import merge, split
from squid.nn.uncertainty import LOG_VARIANCE

MemoryPlace = Literal["window", "patch"]


class MemoryBlock(nn.Module):
    """Replaces the maps of patches by their reads of a memory.

    `patch`: a token is the whole map of a patch and each position of the image has its region.
    `window`: the map of every patch is cut into grid x grid windows and a region serves the same
    window of all patches.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        grid: int,
        place: MemoryPlace,
        shortcut: ShortcutKind | Literal["deferred"] = "masked",
        rho: float = 0.95,
    ) -> None:
        """`deferred`: in training the maps pass unchanged and only fill the memory, which is read
        after training."""
        super().__init__()
        self.memory, self.grid, self.place = memory, grid, place
        self.deferred = shortcut == "deferred"
        self.shortcut: ShortcutKind = "none" if shortcut == "deferred" else shortcut
        self.rho = rho

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(b*p, c, h, w) -> (b*p, c, h, w); the mask, in training, is (b*p, 1, h, w)."""
        # Windows of a patch's map are tokens like patches of an image: (b*p) maps become (b*p*p).
        maps = split(x, self.grid) if self.place == "window" else x
        tokens = rearrange(maps, "(b p) c h w -> b p (h w c)", p=self.grid**2)  # (b, p, d)
        # Deferred: features of the unchanged decoder fill the queue, to be read after training.
        if self.deferred and self.training:
            assert isinstance(self.memory, MemoryQueue)
            self.memory.keep(tokens)
            return x
        found = rearrange(
            self.memory(tokens), "b p (h w c) -> (b p) c h w", h=maps.shape[2], w=maps.shape[3]
        )
        found = merge(found, self.grid) if self.place == "window" else found
        return shortcut(x, found, self.shortcut, mask=mask, rho=self.rho)


class Decoder(nn.Module):
    """The bottlenecks of patches -> the image. Patches are merged before the last `merge_level`
    doublings."""

    def __init__(
        self,
        channels: Sequence[int],
        *,
        grid: int,
        merge_level: int,
        skips: bool = True,
        memories: Sequence[MemoryBlock] = (),
        bias: bool = True,
        uncertainty: bool = False,
    ) -> None:
        """`channels` are the encoder's; skips and memories serve the levels before patches are
        merged. With `uncertainty` the variance of each pixel is predicted, too."""
        super().__init__()
        depth = len(channels) - 1
        self.grid, self.merged_at = grid, depth - merge_level
        self.skipped = self.merged_at if skips else 0
        # A level with a skip takes the encoder's map of the same size as further channels.
        self.levels = nn.ModuleList(
            ResidualBlock(
                channels[i + 1] + (channels[i] if i >= depth - self.skipped else 0),
                channels[i],
                bias=bias,
            )
            for i in reversed(range(depth))
        )
        self.memories = nn.ModuleList(memories)
        self.out = nn.Conv2d(channels[0], 1, 1)
        self.log_variance = nn.Conv2d(channels[0], 1, 1) if uncertainty else None

    def forward(
        self, x: Tensor, skips: Sequence[Tensor], masks: Sequence[Tensor | None] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """The image (b, 1, h, w) in [0, 1], and the features of each level, smallest first."""
        # The features of every level are what the student learns from the teacher.
        features = []
        masks = masks or [None] * len(self.memories)
        for i, level in enumerate(self.levels):
            # Patches become one map at the first level of the whole image.
            x = upsample2(merge(x, self.grid) if i == self.merged_at else x)
            x = level(torch.cat((skips[-1 - i], x), 1) if i < self.skipped else x)
            if i < len(self.memories):
                x = self.memories[i](x, masks[i])
            features.append(x)
        return torch.sigmoid(to_one_channel(self.out, x)), features

    def predict_log_variance(self, features: Sequence[Tensor]) -> Tensor | None:
        """(b, 1, h, w): the logarithm of the variance of each pixel, from the features of the last
        level; None without `uncertainty`."""
        if self.log_variance is None:
            return None
        return to_one_channel(self.log_variance, features[-1]).clamp(*LOG_VARIANCE)
