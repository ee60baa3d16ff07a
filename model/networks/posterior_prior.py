"""The posterior of earlier rows as the prior of a fit to new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

__all__ = ["PosteriorPrior", "flat", "sigmas"]


def flat(tensors: Mapping[str, Tensor], names: Iterable[str], parameter: str) -> Tensor:
    """Return ``mu`` or ``rho`` of all weights and biases as one flat tensor, ``[M, P]``.

    Args:
        tensors: Name (`model.networks.bayesian_network.Architecture.shapes`) → tensor.
        names: All names, in the order of the shapes.
        parameter: ``mu`` or ``rho``.
    """
    parts = [tensors[name].detach().flatten(start_dim=1) for name in names if name.endswith(f".{parameter}")]
    return torch.cat(parts, dim=1)


def sigmas(rho: Tensor) -> Tensor:
    """Return the standard deviations, ``softplus(rho)``."""
    return functional.softplus(rho)


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorPrior:
    """``N(mean, scale^2)`` with its own mean and scale for every weight and bias of every member.

    With the posterior of earlier rows as the prior, a fit to new rows gives the posterior of all rows: Bayes' rule in
    two steps (for a variational posterior, Nguyen et al. 2018, "Variational Continual Learning", equation 4).

    Attributes:
        mean: Means, ``[M, P]``.
        scale: Standard deviations, ``[M, P]``, positive.
    """

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], names: Iterable[str], device: torch.device | None = None) -> Self:
        """Build the prior on a device from the tensors of a checkpoint, named as for `flat`."""
        names = tuple(names)
        return cls(flat(tensors, names, "mu").to(device), sigmas(flat(tensors, names, "rho")).to(device))

    def kl_of_each(self, mu: Tensor, sigma: Tensor) -> Tensor:
        """Return the KL divergence of each weight, ``[M, P]``, in nats.

        ``log(s0 / s) + (s^2 + (m - m0)^2) / (2 s0^2) - 1/2`` (Kingma & Welling 2014, appendix B, for a general
        Gaussian).
        """
        ratio = sigma / self.scale
        moved = (mu - self.mean) / self.scale
        return 0.5 * (ratio.square() + moved.square() - 1.0) - torch.log(ratio)

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - each weight has a prior of its own
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the exact divergence and derivatives (`model.networks.priors.Prior.kl_gradient`)."""
        variance = self.scale.square()
        by_sigma = sigma / variance - sigma.reciprocal()
        return self.kl_of_each(mu, sigma).sum(dim=1), (mu - self.mean) / variance, by_sigma
