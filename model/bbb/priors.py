"""Priors over weights, and the KL divergence of the variational posterior from each of them.

Every weight has the variational posterior ``N(mu, sigma**2)``. A prior computes the divergence ``KL(q || prior)`` of a
whole network, in nats, one value for each member. The divergence is **summed** over the weights: an average over
weights would be a different, far weaker regulariser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self, TypeAlias

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from murho.model.errors import OptionError
from murho.model.json_validation import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "EmpiricalBayesPrior",
    "GaussianPrior",
    "PosteriorPrior",
    "Prior",
    "ScaleMixturePrior",
    "StoredPrior",
    "flat",
    "sigmas",
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


def _by_mu_and_sigma(mu: Tensor, sigma: Tensor, precision: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the derivatives of ``KL(N(mu, sigma^2) || N(0, s0^2))`` by mu and sigma, with precision ``1 / s0^2``."""
    return mu * precision, torch.sub(sigma * precision, sigma.reciprocal())


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise OptionError(f"{name} must be a positive number, not {value!r}")


@dataclass(frozen=True, slots=True)
class GaussianPrior(Stored):
    """``N(0, sigma^2)`` for every weight and bias, with the KL divergence in closed form.

    Attributes:
        sigma: Standard deviation, in the units of standardised inputs and target.
    """

    sigma: float = 1.0
    kind: Literal["gaussian"] = "gaussian"

    def __post_init__(self) -> None:
        _require_positive("prior sigma", self.sigma)

    def kl_gradient(
        self,
        mu: Tensor,
        sigma: Tensor,
        groups: Tensor,  # noqa: ARG002 - the same for every tensor
        generator: torch.Generator | None = None,  # noqa: ARG002 - closed form
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the exact divergence and derivatives (`Prior.kl_gradient`).

        Each weight adds ``log(s0 / s) + (s^2 + mu^2) / (2 s0^2) - 1/2`` (Kingma & Welling 2014, appendix B, for a
        general scale).
        """
        by_mu, by_sigma = _by_mu_and_sigma(mu, sigma, self.sigma**-2)
        moments = (sigma * sigma).addcmul_(mu, mu).sum(dim=1)
        constant = mu.shape[1] * (math.log(self.sigma) - 0.5)
        kl = (constant - torch.log(sigma).sum(dim=1)).add_(moments, alpha=0.5 * self.sigma**-2)
        return kl, by_mu, by_sigma


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

    pi: float = 0.5
    sigma1: float = 1.0
    sigma2: float = 0.1
    kind: Literal["scale-mixture"] = "scale-mixture"

    def __post_init__(self) -> None:
        if not 0.0 < self.pi < 1.0:
            raise OptionError(f"prior pi must lie strictly between 0 and 1, not {self.pi!r}")
        _require_positive("prior sigma1", self.sigma1)
        _require_positive("prior sigma2", self.sigma2)

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

    alpha: float = 2.01
    beta: float = 0.101
    kind: Literal["empirical-bayes"] = "empirical-bayes"

    def __post_init__(self) -> None:
        _require_positive("empirical Bayes alpha", self.alpha)
        _require_positive("empirical Bayes beta", self.beta)

    def _optimum(self, mu: Tensor, sigma: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return optimal prior variances and sums of ``sigma^2 + mu^2``, ``[M, G]``, and weight counts, ``[G]``."""
        counts = torch.bincount(groups)
        moments = mu.new_zeros((len(mu), len(counts)))
        moments.index_add_(1, groups, (sigma * sigma).addcmul_(mu, mu))
        return (moments + 2.0 * self.beta) / (counts + (2.0 * self.alpha + 2.0)), moments, counts

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
        variance, moments, counts = self._optimum(mu, sigma, groups)
        precision = variance.reciprocal()
        by_mu, by_sigma = _by_mu_and_sigma(mu, sigma, precision.index_select(1, groups))
        # Terms shared by all weights of a tensor, with the negative log hyperprior, are summed over the tensors.
        hyperprior = math.lgamma(self.alpha) - self.alpha * math.log(self.beta)
        constant = len(counts) * hyperprior - 0.5 * mu.shape[1]
        of_tensors = (0.5 * counts + (self.alpha + 1.0)) * torch.log(variance)
        of_tensors.addcmul_((0.5 * moments + self.beta), precision)
        return (of_tensors.sum(dim=1) - torch.log(sigma).sum(dim=1)).add_(constant), by_mu, by_sigma


StoredPrior: TypeAlias = Annotated[GaussianPrior | ScaleMixturePrior | EmpiricalBayesPrior, Field(discriminator="kind")]
"""A prior that a checkpoint names."""


def flat(tensors: Mapping[str, Tensor], names: Iterable[str], parameter: str) -> Tensor:
    """Return ``mu`` or ``rho`` of all weights and biases as one flat tensor, ``[M, P]``.

    Args:
        tensors: Name (`model.bbb.network.Architecture.shapes`) → tensor.
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
        """Return the exact divergence and derivatives (`model.bbb.priors.Prior.kl_gradient`)."""
        variance = self.scale.square()
        by_sigma = sigma / variance - sigma.reciprocal()
        return self.kl_of_each(mu, sigma).sum(dim=1), (mu - self.mean) / variance, by_sigma
