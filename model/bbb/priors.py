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

__all__ = [
    "EmpiricalBayesPrior",
    "GaussianPrior",
    "PosteriorPrior",
    "Prior",
    "ScaleMixturePrior",
    "StoredPrior",
    "gaussian_kl",
]


class Prior(Protocol):
    """The interface of a prior over weights."""

    def kl_gradient(
        self, mu: Tensor, sigma: Tensor, groups: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the divergence of the posterior of all weights from the prior, and its closed-form derivatives.

        Args:
            mu: Means, ``[M, P]``.
            sigma: Standard deviations, ``[M, P]``, positive.
            groups: Index of the tensor (a layer's weights, or its biases) of each entry, ``[P]``.
            generator: Source of the draws of a Monte Carlo estimate; unused in closed forms.

        Returns:
            The divergence in nats, ``[M]``, summed over the weights of each member; its derivatives with respect to mu
            and to sigma, ``[M, P]`` each.
        """
        ...


def gaussian_kl(
    mu: Tensor, sigma: Tensor, mean: Tensor | float, scale: Tensor | float
) -> tuple[Tensor, Tensor, Tensor]:
    """`Prior.kl_gradient` of the prior ``N(mean, scale^2)``.

    Each weight adds ``log(s0 / s) + (s^2 + (m - m0)^2) / (2 s0^2) - 1/2`` (Kingma & Welling 2014, appendix B, for a
    general Gaussian).
    """
    precision, moved = scale**-2, mu - mean
    by_mu, by_sigma = moved * precision, sigma * precision
    squares = (moved * by_mu).addcmul_(sigma, by_sigma).sum(dim=1)
    kl = 0.5 * (squares - mu.shape[1]) - torch.log(sigma / scale).sum(dim=1)
    return kl, by_mu, by_sigma.sub_(sigma.reciprocal())


@dataclass(frozen=True, slots=True)
class GaussianPrior(Stored):
    """``N(0, sigma^2)`` for every weight and bias, with the KL divergence in closed form.

    Attributes:
        sigma: Standard deviation, in the units of standardised inputs and target.
    """

    sigma: Positive = 1.0
    kind: Literal["gaussian"] = "gaussian"

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - the same for every tensor
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the exact divergence and derivatives (`Prior.kl_gradient`)."""
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

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - the same for every tensor
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return unbiased estimates from one reparameterised draw of every weight (`Prior.kl_gradient`)."""
        epsilon = torch.empty_like(mu).normal_(generator=generator)
        weights = torch.addcmul(mu, sigma, epsilon)
        # log(wide) - log(narrow) is linear in w^2, and log(wide + narrow) is log(narrow) + softplus of it. With half a
        # million weights every further operation counts.
        squares = weights * weights
        narrow, wide = self.sigma2**-2, self.sigma1**-2
        constant = math.log(self.pi / (1.0 - self.pi)) - math.log(self.sigma1 / self.sigma2)
        logit = (squares * (0.5 * (narrow - wide))).add_(constant)
        entropy_and_cross = torch.log(sigma).add_(functional.softplus(logit)).sub_(squares, alpha=0.5 * narrow)
        # The constants of the narrow component and of the entropy; log(2 pi) / 2 is in both.
        constants = mu.shape[1] * (math.log(self.sigma2) - math.log1p(-self.pi) - 0.5)
        kl = constants - entropy_and_cross.sum(dim=1)
        by_weight = logit.sigmoid_().mul_(wide - narrow).add_(narrow).mul_(weights)  # share of the wide component
        return kl, by_weight, epsilon.mul_(by_weight).sub_(sigma.reciprocal())


@dataclass(frozen=True, slots=True)
class EmpiricalBayesPrior(Stored):
    """``N(0, s^2)`` with one ``s`` per tensor and member, set to its optimum in closed form.

    With an inverse-gamma(``alpha``, ``beta``) hyperprior on ``s^2`` and ``n`` weights in the tensor, the optimum is
    ``s^2 = (sum(sigma^2 + mu^2) + 2 beta) / (n + 2 alpha + 2)`` (Wu et al. 2019, "Deterministic Variational Inference",
    section 4). The divergence includes the negative log hyperprior of the optimum, so its gradient is exact by the
    envelope theorem.

    Attributes:
        alpha: Shape of the hyperprior.
        beta: Scale of the hyperprior.
    """

    alpha: Positive = 2.01
    beta: Positive = 0.101
    kind: Literal["empirical-bayes"] = "empirical-bayes"

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the exact divergence and derivatives (`Prior.kl_gradient`).

        They are exact because the derivative with respect to the optimal scales is zero.
        """
        counts = torch.bincount(groups)
        moments = mu.new_zeros((len(mu), len(counts)))
        moments.index_add_(1, groups, (sigma * sigma).addcmul_(mu, mu))
        variance = (moments + 2.0 * self.beta) / (counts + (2.0 * self.alpha + 2.0))
        precision = variance.reciprocal()
        of_weights = precision.index_select(1, groups)
        by_mu, by_sigma = mu * of_weights, torch.sub(sigma * of_weights, sigma.reciprocal())
        # Terms shared by all weights of a tensor, with the negative log hyperprior, are summed over the tensors.
        hyperprior = math.lgamma(self.alpha) - self.alpha * math.log(self.beta)
        constant = len(counts) * hyperprior - 0.5 * mu.shape[1]
        of_tensors = (0.5 * counts + (self.alpha + 1.0)) * torch.log(variance)
        of_tensors.addcmul_((0.5 * moments + self.beta), precision)
        return (of_tensors.sum(dim=1) - torch.log(sigma).sum(dim=1)).add_(constant), by_mu, by_sigma


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

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - each weight has a prior of its own
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the exact divergence and derivatives (`model.bbb.priors.Prior.kl_gradient`)."""
        return gaussian_kl(mu, sigma, self.mean, self.scale)
