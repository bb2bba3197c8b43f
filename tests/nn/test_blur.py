"""Gaussian smoothing."""

import torch
from scipy.ndimage import gaussian_filter

from squid.nn.blur import gaussian_blur


def test_it_is_that_of_scipy() -> None:
    maps = torch.rand(2, 40, 30, generator=torch.Generator().manual_seed(0))
    for ours, map_ in zip(gaussian_blur(maps, 2.0), maps, strict=True):
        theirs = gaussian_filter(map_.numpy(), 2.0, mode="mirror", truncate=3.0)
        torch.testing.assert_close(ours, torch.from_numpy(theirs))


def test_maps_smaller_than_the_kernel_are_accepted() -> None:
    torch.testing.assert_close(gaussian_blur(torch.ones(1, 4, 4), 8.0), torch.ones(1, 4, 4))
