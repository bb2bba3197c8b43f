"""Patch-MemAE: one MemAE for each position of a patch (SQUID, Xiang et al., CVPR 2023, appendix,
arXiv:2111.13495)."""

from typing import Annotated, ClassVar, Literal

import torch
from einops import rearrange
from pydantic import Field
from torch import Tensor, nn

from squid.methods.base import Batch, MethodConfig, Shared
from squid.methods.memae import MemorySettings, memory_loss, memory_network
from squid.methods.reconstruction import ReconstructionMethod
from squid.nn.autoencoder import to_signed
from squid.nn.patches import merge, split


class PatchMemAEConfig(MemorySettings):
    """MemAE's settings, for each of the networks."""

    name: Literal["patch_memae"] = "patch_memae"
    grid: Annotated[int, Field(ge=1, le=8)] = 2
    """The image is cut into grid x grid patches."""

    @property
    def multiple(self) -> int:
        return super().multiple * self.grid


class PatchMemAE(ReconstructionMethod):
    """Networks that share nothing. The mean error over positions is that over the whole
    reconstruction."""

    Config: ClassVar[type[MethodConfig]] = PatchMemAEConfig
    title = "Patch-MemAE"
    paper = "Xiang et al., CVPR 2023, appendix, arXiv:2111.13495"

    def __init__(self, config: PatchMemAEConfig) -> None:
        super().__init__()
        self.config: PatchMemAEConfig = config
        self.networks = nn.ModuleList(memory_network(config) for _ in range(config.grid**2))

    def loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        """Sums over positions, so that each network's gradient is that of training it alone."""
        weight = self.config.entropy_weight
        pairs = zip(self.networks, self._patches(batch.images), strict=True)
        terms = [memory_loss(network, patches, weight) for network, patches in pairs]
        return {name: torch.stack([term[name] for term in terms]).sum() for name in terms[0]}

    def reconstruct_signed(self, images: Tensor) -> Tensor:
        # One network per position, each with the patches of all images there.
        pairs = zip(self.networks, self._patches(images), strict=True)
        reconstructions = torch.stack([network(patches)[0] for network, patches in pairs])
        return merge(rearrange(reconstructions, "p b c h w -> (b p) c h w"), self.config.grid)

    def _patches(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) in [0, 1] -> (p, b, 1, h / grid, w / grid) in [-1, 1], by position."""
        patches = split(to_signed(images), self.config.grid)
        return rearrange(patches, "(b p) c h w -> p b c h w", b=images.shape[0])
