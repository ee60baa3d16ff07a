"""Gaussian noise around the function value: the base of the fixed, homoscedastic and heteroscedastic models."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from murho.model.distributions.mixtures import LOG_SQRT_2PI
from murho.model.likelihoods.censoring import tail_terms
from murho.model.likelihoods.gaussian_mixture import GaussianMixtureLikelihood
from murho.model.likelihoods.likelihood import beta_weights

__all__ = ["GaussianNoise"]


class GaussianNoise(GaussianMixtureLikelihood):
    """``N(y; output_0, noise^2)``. A subclass defines the noise."""

    outputs = 1
    means = 1
    mixture_outputs = True

    @abstractmethod
    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Standard deviation of an observation given each draw, broadcastable to ``outputs[..., 0]``.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.
        """

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of a Gaussian, ``[M, B]``; see `Likelihood.log_density`."""
        noise = self.noise(outputs)
        residual = (targets - outputs[..., 0]) / noise
        log_density = -0.5 * residual.square() - torch.log(noise) - LOG_SQRT_2PI
        if self.limits is None:
            return log_density
        at_limit, log_tail, _, _ = tail_terms(residual, targets, self.limits)
        return torch.where(at_limit, log_tail, log_density)

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, beta: float = 0.0, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log density and its derivative, in closed form; see `Likelihood.gradient`."""
        noise = self.noise(outputs)
        precision = noise.reciprocal()
        residual = torch.sub(targets, outputs.select(2, 0)).mul_(precision)
        square = residual * residual
        log_density = torch.sub(torch.log(precision * math.exp(-LOG_SQRT_2PI)), square, alpha=0.5)
        if self.limits is not None:
            at_limit, *terms = tail_terms(residual, targets, self.limits)
            log_density, residual, square = (
                torch.where(at_limit, term, part)
                for term, part in zip(terms, (log_density, residual, square), strict=True)
            )
        scale = precision.mul_(factor)
        if weights is not None:
            scale = scale * weights
        by_mean = residual.mul_(scale)
        if beta > 0.0 and noise.shape[1] > 1:
            by_mean.mul_(beta_weights(noise, beta, weights))
        by_output = self._noise_gradient(square, scale, outputs)
        if by_output is None:
            return log_density, by_mean.unsqueeze(2)
        return log_density, torch.stack((by_mean, by_output), dim=2)

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 - the noise is not learned here
        """Apply the chain rule from the noise, with derivative ``scale (square - 1)``, to the source of the noise.

        Args:
            square: Squared residuals in units of the noise, ``[M, B]``; may be overwritten.
            scale: ``factor / noise`` times the weights of the rows, broadcastable to ``square``.
            outputs: Network outputs, ``[M, B, P]``.

        Returns:
            The derivative by the second output, ``[M, B]``; None if the network has no second output.
        """
        return None

    def components(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One Gaussian per row (K = 1), without weights; see `Likelihood.components`."""
        return outputs[..., :1], self.noise(outputs, members).unsqueeze(-1), None
