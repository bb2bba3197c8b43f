"""Gaussians fitted in closed form: their moments, and the Mahalanobis distance to them."""

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor, nn


class Gaussian(nn.Module):
    """`p` Gaussians of `d` dimensions, one for each location; empty until fitted."""

    mean: Tensor
    whitening: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(0))
        self.register_buffer("whitening", torch.empty(0))

    def fit(self, mean: Tensor, covariance: Tensor) -> None:
        """(p, d), (p, d, d)."""
        # With the inverse of the Cholesky factor a distance is one product, with nothing to solve.
        factor = torch.linalg.cholesky(covariance.double())  # (p, d, d)
        unit = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        inverse = torch.linalg.solve_triangular(factor, unit.expand_as(factor), upper=False)
        self.mean, self.whitening = mean.float(), inverse.float()

    def distance(self, x: Tensor) -> Tensor:
        """(b, p, d) -> (b, p): Mahalanobis distance, not squared."""
        white: Tensor = torch.einsum("ped,bpd->bpe", self.whitening, x.float() - self.mean)
        return white.square().sum(-1).sqrt()


class Moments:
    """Mean and covariance at each location from sums, so that no batch has to be kept."""

    def __init__(self) -> None:
        self._count = 0
        self._sum: Tensor | float = 0.0
        self._products: Tensor | float = 0.0

    def add(self, x: Tensor) -> None:
        """(b, p, d)."""
        # Sums of squares of large features need double precision.
        x = x.double()
        self._count += len(x)
        self._sum = self._sum + x.sum(0)  # (p, d)
        self._products = self._products + torch.einsum("bpd,bpe->pde", x, x)

    def mean(self) -> Tensor:
        return torch.as_tensor(self._sum / self._count)

    def covariance(self) -> Tensor:
        """(p, d, d), unbiased."""
        mean = self.mean()
        outer = torch.einsum("pd,pe->pde", mean, mean)
        return (self._products - self._count * outer) / (self._count - 1)


def ledoit_wolf(x: Tensor) -> Tensor:
    """(n, d) -> (d, d): the covariance shrunk towards a multiple of the identity."""
    covariance = LedoitWolf().fit(x.double().cpu().numpy()).covariance_
    return torch.from_numpy(covariance).to(x.device)
