"""The mixture-density observation model: K Gaussians per row, all predicted by the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from murho.model.distributions.mixtures import LOG_SQRT_2PI
from murho.model.errors import OptionError
from murho.model.likelihoods.censoring import tail_terms
from murho.model.likelihoods.gaussian_mixture import GaussianMixtureLikelihood
from murho.model.likelihoods.likelihood import INITIAL_NOISE, NOISE_FLOOR, beta_weights
from murho.model.networks.layers import inverse_softplus

if TYPE_CHECKING:
    from murho.model.likelihoods.likelihood import LikelihoodOptions

__all__ = ["MOST_COMPONENTS", "MixtureNoise"]

MOST_COMPONENTS = 20


class MixtureNoise(GaussianMixtureLikelihood):
    """``sum_k weight_k N(y; mean_k, noise_k^2)``: means, noises and weights are outputs of the network.

    For targets with skewed, heavy-tailed or multimodal scatter (Bishop 1994, "Mixture density networks"). The P = 3 K
    outputs are K means, then K noises before softplus, then K weights before softmax.
    """

    kind = "mixture"
    mixture_outputs = True

    def __init__(self, components: int) -> None:
        """Store the number of components.

        Args:
            components: K, 1 to 20.

        Raises:
            OptionError: K is out of range.
        """
        super().__init__()
        if not 1 <= components <= MOST_COMPONENTS:
            raise OptionError(f"a mixture has 1 to {MOST_COMPONENTS} components a row, not {components}")
        self.means = components
        self.outputs = 3 * components

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Mixture noise with the K of the options; see `Likelihood.make`."""
        if options.components is None:
            raise OptionError("mixture noise needs its number of components: give --noise-components")
        return cls(options.components)

    def to_json(self) -> dict[str, Any]:
        """Kind and K, for ``model.json``; see `Likelihood.to_json`."""
        return super().to_json() | {"components": self.means}

    @property
    def initial_outputs(self) -> dict[int, float]:
        """Initial noises and weights, the same for every row; see `Likelihood.initial_outputs`."""
        start = float(inverse_softplus(torch.tensor(INITIAL_NOISE)))
        noises = dict.fromkeys(range(self.means, 2 * self.means), start)
        return noises | dict.fromkeys(range(2 * self.means, 3 * self.means), 0.0)

    def components(
        self,
        outputs: Tensor,
        members: Tensor | None = None,  # noqa: ARG002 - outputs are per draw already
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Means, noises and weights of the K Gaussians; see `Likelihood.components`."""
        means, raw, logits = outputs.split(self.means, dim=-1)
        return means, NOISE_FLOOR + functional.softplus(raw), _weights(logits)

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """The mixture of ``others``, moved by the weighted mean of the shifts of its components.

        See `Likelihood.with_scatter_of` for the arguments. Weights are part of the scatter: extrapolated weights could
        select components that no training row has fitted, and the means of those could be anything.
        """
        there, scatter = others[..., : self.means], others[..., self.means :]
        weights = _weights(others[..., 2 * self.means :])
        moved = (weights * (outputs[..., : self.means] - there)).sum(dim=-1, keepdim=True)
        return torch.cat((there + moved, scatter), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of the mixture, ``[M, B]``; see `Likelihood.log_density`."""
        joint, _, _, _ = self._joint(outputs, targets)
        return torch.logsumexp(joint, dim=-1)

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, beta: float = 0.0, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log density and its derivative (Bishop 1994, equations 35 to 39); see `Likelihood.gradient`."""
        joint, residual, square, noise = self._joint(outputs, targets)
        log_density = torch.logsumexp(joint, dim=-1)
        share = torch.exp(joint - log_density.unsqueeze(-1))  # responsibility of each component for the target
        gradient = torch.empty_like(outputs)
        by_mean, by_raw, by_logit = gradient.split(self.means, dim=-1)
        torch.mul(share, residual / noise, out=by_mean)
        if beta > 0.0:
            by_mean.mul_(beta_weights(noise, beta, weights))
        by_noise = share * (square - 1.0) / noise
        torch.mul(by_noise, -torch.expm1(NOISE_FLOOR - noise), out=by_raw)
        torch.sub(share, torch.softmax(outputs[..., 2 * self.means :], dim=-1), out=by_logit)
        if weights is not None:
            gradient.mul_(weights.unsqueeze(-1))
        return log_density, gradient.mul_(factor)

    def _joint(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log weight plus log density of each component, residuals and squares in units of the noise, and the noise."""
        means, raw, logits = outputs.split(self.means, dim=-1)
        noise = NOISE_FLOOR + functional.softplus(raw)
        residual = (targets.unsqueeze(-1) - means) / noise
        square = residual.square()
        density = -0.5 * square - torch.log(noise) - LOG_SQRT_2PI
        if self.limits is not None:
            at_limit, *terms = tail_terms(residual, targets.unsqueeze(-1), self.limits)
            density, residual, square = (
                torch.where(at_limit, term, part) for term, part in zip(terms, (density, residual, square), strict=True)
            )
        return torch.log_softmax(logits, dim=-1) + density, residual, square, noise


def _weights(logits: Tensor) -> Tensor:
    """Softmax over the components. Transposed, it is ten times as fast in the engine's layout (rows contiguous)."""
    return torch.softmax(logits.transpose(-1, -2), dim=-2).transpose(-1, -2)
