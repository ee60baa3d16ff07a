"""Priors over weights, and the KL divergence of the variational posterior from each of them.

Every weight has the variational posterior ``N(mu, sigma**2)``. A prior computes the divergence ``KL(q || prior)`` of a
whole network, in nats, one value for each member. The divergence is **summed** over the weights: an average over
weights would be a different, far weaker regulariser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from murho.model.json_validation import Positive, Stored


class Prior(Protocol):
    """The interface of a prior over weights."""

    def kl(self, mu: Tensor, sigma: Tensor, groups: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the divergence of the posterior of all weights from the prior, which can be differentiated.

        Args:
            mu: Means, ``[M, P]``.
            sigma: Standard deviations, ``[M, P]``, positive.
            groups: Group of each entry, ``[P]`` (`model.bbb.network.BayesianNetwork`).
            generator: Source of the draws of a Monte Carlo estimate; unused in closed forms.

        Returns:
            ``[M]``, nats, summed over the weights of each member.
        """
        ...


def gaussian_kl(mu: Tensor, sigma: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    """`Prior.kl` of the prior ``N(mean, scale^2)``.

    Each weight adds ``log(s0 / s) + (s^2 + (m - m0)^2) / (2 s0^2) - 1/2`` (Kingma & Welling 2014, appendix B, for a
    general Gaussian).
    """
    squares = (sigma.square() + (mu - mean).square()) / scale**2
    return (0.5 * (squares - 1.0) - torch.log(sigma / scale)).sum(dim=1)


@dataclass(frozen=True, slots=True)
class GaussianPrior(Stored):
    """``N(0, sigma^2)`` for every weight and bias, with the KL divergence in closed form.

    Attributes:
        sigma: Standard deviation, in the units of standardised inputs and target.
    """

    sigma: Positive = 1.0
    kind: Literal["gaussian"] = "gaussian"

    def kl(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - the same for every group
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> Tensor:
        """Return the exact divergence (`Prior.kl`)."""
        return gaussian_kl(mu, sigma, 0.0, self.sigma)


@dataclass(frozen=True, slots=True)
class ScaleMixturePrior(Stored):
    """``pi N(0, sigma1^2) + (1 - pi) N(0, sigma2^2)``, Blundell et al. 2015, equation 7.

    The entropy of the posterior is exact. The cross term ``E_q[log prior(w)]`` is an unbiased Monte Carlo
    estimate from one draw, with reparameterised gradients.

    Attributes:
        pi: Weight of the first component, strictly between 0 and 1.
        sigma1: Standard deviation of the wide component.
        sigma2: Standard deviation of the narrow component.
    """

    pi: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    sigma1: Positive = 1.0
    sigma2: Positive = 0.1
    kind: Literal["scale-mixture"] = "scale-mixture"

    def kl(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - the same for every group
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return an unbiased estimate from one reparameterised draw of every weight (`Prior.kl`)."""
        squares = torch.addcmul(mu, sigma, torch.empty_like(mu).normal_(generator=generator)).square()
        # log(wide) - log(narrow) is linear in w^2, and log(wide + narrow) is log(narrow) + softplus of it.
        narrow, wide = self.sigma2**-2, self.sigma1**-2
        logit = squares * (0.5 * (narrow - wide)) + math.log(self.pi * self.sigma2 / ((1.0 - self.pi) * self.sigma1))
        entropy_and_cross = torch.log(sigma) + functional.softplus(logit) - 0.5 * narrow * squares
        # The constants of the narrow component and of the entropy; log(2 pi) / 2 is in both.
        constants = mu.shape[1] * (math.log(self.sigma2) - math.log1p(-self.pi) - 0.5)
        return constants - entropy_and_cross.sum(dim=1)


@dataclass(frozen=True, slots=True)
class EmpiricalBayesPrior(Stored):
    """``N(0, s^2)`` with one ``s`` per group of weights and member, set to its optimum in closed form.

    With an inverse-gamma(``alpha``, ``beta``) hyperprior on ``s^2`` and ``n`` weights in the group, the optimum is
    ``s^2 = (sum(sigma^2 + mu^2) + 2 beta) / (n + 2 alpha + 2)`` (Wu et al. 2019, "Deterministic Variational Inference",
    section 4). The divergence includes the negative log hyperprior of the optimum.

    Attributes:
        alpha: Shape of the hyperprior.
        beta: Scale of the hyperprior.
    """

    alpha: Positive = 2.01
    beta: Positive = 0.101
    kind: Literal["empirical-bayes"] = "empirical-bayes"

    def kl(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> Tensor:
        """Return the exact divergence at the optimal scales (`Prior.kl`)."""
        counts = torch.bincount(groups)
        zeros = mu.new_zeros((len(mu), len(counts)))
        moments = zeros.index_add(1, groups, sigma.square() + mu.square())
        variance = (moments + 2.0 * self.beta) / (counts + (2.0 * self.alpha + 2.0))
        # Terms shared by all weights of a group, with the negative log hyperprior, are summed over the groups.
        hyperprior = math.lgamma(self.alpha) - self.alpha * math.log(self.beta)
        constant = len(counts) * hyperprior - 0.5 * mu.shape[1]
        of_groups = (0.5 * counts + (self.alpha + 1.0)) * torch.log(variance) + (0.5 * moments + self.beta) / variance
        return of_groups.sum(dim=1) - torch.log(sigma).sum(dim=1) + constant


StoredPrior: TypeAlias = Annotated[GaussianPrior | ScaleMixturePrior | EmpiricalBayesPrior, Field(discriminator="kind")]
"""A prior that a checkpoint names."""


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

    def kl(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - each weight has a prior of its own
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> Tensor:
        """Return the exact divergence (`Prior.kl`)."""
        return gaussian_kl(mu, sigma, self.mean, self.scale)
