"""Gaussian noise with one learned standard deviation per member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.likelihoods.gaussian import GaussianNoise
from murho.model.likelihoods.likelihood import INITIAL_NOISE, NOISE_FLOOR
from murho.model.networks.layers import inverse_softplus

if TYPE_CHECKING:
    from murho.model.likelihoods.likelihood import LikelihoodOptions

__all__ = ["HomoscedasticNoise", "noise_of", "rho_of"]


def noise_of(rho: Tensor) -> Tensor:
    """``floor + softplus(rho)``: the learned standard deviation, standardised units; any shape."""
    return NOISE_FLOOR + functional.softplus(rho)


def rho_of(noise: Tensor) -> Tensor:
    """The inverse of `noise_of`; noise at or below the floor gives a finite rho."""
    return inverse_softplus((noise - NOISE_FLOOR).clamp_min(1e-8))


class HomoscedasticNoise(GaussianNoise):
    """``N(y; output, noise^2)`` with the learned ``noise = floor + softplus(rho)``, one per member.

    Attributes:
        rho: Unconstrained scale of the noise, ``[M, 1]``.
    """

    kind = "homoscedastic"

    def __init__(self, members: int, initial: float = INITIAL_NOISE) -> None:
        """Start from a given noise.

        Args:
            members: M.
            initial: Initial standard deviation, standardised units.
        """
        super().__init__()
        rho = rho_of(torch.tensor(initial, dtype=torch.float64)).float()
        self.rho = nn.Parameter(rho.expand(members, 1).clone())
        self._earlier: tuple[float, Tensor] | None = None

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Homoscedastic noise for M members; see `Likelihood.make`."""
        return cls(options.members)

    def remember(self, share: float) -> None:
        """Count earlier rows with squared residuals as large as the present variance; see `Likelihood.remember`."""
        self._earlier = share, noise_of(self.rho.detach()).square()

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - the same for every row
        """The noise of each member, ``[M, 1]`` or ``[S, 1]``; see `GaussianNoise.noise`."""
        return noise_of(self.rho if members is None else self.rho[members])

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> None:  # noqa: ARG002 - the same for every row
        if scale.shape[1] == 1:
            by_noise = square.sum(dim=1, keepdim=True).sub_(square.shape[1]).mul_(scale)
        else:  # rows with weights of their own
            by_noise = square.sub_(1.0).mul_(scale).sum(dim=1, keepdim=True)
        if self._earlier is not None:
            # The slope of share (log noise + variance / (2 noise^2)): minus the log density of the earlier rows.
            share, variance = self._earlier
            noise = noise_of(self.rho)
            by_noise += share * (noise.reciprocal() - variance / noise**3)
        self.rho.grad = by_noise.mul_(torch.sigmoid(self.rho))  # the slope of softplus
