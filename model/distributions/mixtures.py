"""Mixtures of Gaussians, one for each of B rows: moments, distribution function, quantiles, scores.

Nothing is sampled: percentiles invert the mixture's distribution function, and scores are closed forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.distributions.mixture_quantiles import mixture_quantiles

if TYPE_CHECKING:
    from murho.model.distributions.wide_component import WideComponent

__all__ = ["FURTHEST_SCORE", "LOG_SQRT_2PI", "Mixture", "normal_cdf", "score_of_tails"]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
FURTHEST_SCORE = 37.0
"""Normal score at which ``Phi(-z)`` is about the smallest positive number of double precision."""


def normal_cdf(values: Tensor) -> Tensor:
    """The standard normal distribution function, accurate in the lower tail.

    Computed with erfc, which is several times faster than PyTorch's own ``ndtr``.
    """
    return 0.5 * torch.erfc(values * -(0.5**0.5))


def score_of_tails(below: Tensor, above: Tensor) -> Tensor:
    """Normal score from the two tail probabilities, computed from the smaller one; within -37 and 37."""
    scores = torch.where(below < above, torch.special.ndtri(below), -torch.special.ndtri(above))
    return scores.clamp_(-FURTHEST_SCORE, FURTHEST_SCORE)


@dataclass(frozen=True, slots=True)
class Mixture:
    """C Gaussian components for each of B rows; float64, all in the same unit.

    Attributes:
        means: Means of the components, ``[C, B]``.
        noise: Their standard deviations, broadcastable to ``[C, B]``, positive.
        weights: Their weights, ``[C, B]``, of sum 1 over C; None: equal weights.
        wide: One more component, of weight w; the weights of the others are then multiplied by 1 - w.
    """

    means: Tensor
    noise: Tensor
    weights: Tensor | None = None
    wide: WideComponent | None = None

    def average(self, values: Tensor) -> Tensor:
        """Mean over the C components of values ``[C, B, ...]``; ``[B, ...]``."""
        return _average(values, self.weights)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each row's C components, without the wide one, ``[B]`` each."""
        mean = self.average(self.means)
        squares = (self.means - mean).square_().addcmul_(self.noise, self.noise)
        return mean, self.average(squares).sqrt()

    def normal_score(self, values: Tensor) -> Tensor:
        """The normal score ``z = Phi^-1(F(y))`` of values under their row's mixture.

        Computed from the smaller tail, so that it is accurate up to about 37 standard deviations.

        Args:
            values: ``[..., B]``.

        Returns:
            The shape of ``values``, within -37 and 37.
        """
        return score_of_tails(*self.tails(values))

    def tails(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper tail probabilities at values ``[..., B]``; they sum to 1, and the smaller one is accurate."""
        standardised = (values.unsqueeze(-2) - self.means) / self.noise
        share = 1.0 / len(self.means) if self.weights is None else self.weights
        lower = (normal_cdf(standardised) * share).sum(dim=-2)
        upper = (normal_cdf(-standardised) * share).sum(dim=-2)
        if self.wide is not None:
            wider = (values - self.wide.means) / self.wide.noise
            lower = torch.lerp(lower, normal_cdf(wider), self.wide.weight)
            upper = torch.lerp(upper, normal_cdf(-wider), self.wide.weight)
        # Weights from single precision sum to 1 only up to rounding: the larger tail is 1 minus the smaller one.
        less = lower < upper
        return torch.where(less, lower, 1.0 - upper), torch.where(less, 1.0 - lower, upper)

    def log_density(self, values: Tensor) -> Tensor:
        """Log density at one value per row.

        Args:
            values: ``[B]``.

        Returns:
            ``[B]``, nats, of a density per unit of ``means``.
        """
        standardised = (values - self.means) / self.noise
        components = -0.5 * standardised.square() - torch.log(self.noise) - LOG_SQRT_2PI
        if self.weights is None:
            density = torch.logsumexp(components, dim=0) - math.log(len(self.means))
        else:
            density = torch.logsumexp(components + torch.log(self.weights), dim=0)
        if self.wide is None:
            return density
        wider = -0.5 * ((values - self.wide.means) / self.wide.noise).square()
        wider = wider - torch.log(self.wide.noise) - LOG_SQRT_2PI + math.log(self.wide.weight)
        return torch.logaddexp(density + math.log1p(-self.wide.weight), wider)

    def of_rows(self, rows: slice | Tensor) -> Mixture:
        """The mixtures of selected rows, by a slice, a mask ``[B]`` or indices."""
        noise = self.noise if self.noise.shape[-1] == 1 else self.noise[..., rows]
        weights = None if self.weights is None else self.weights[:, rows]
        wide = None if self.wide is None else self.wide.of_rows(rows)
        return Mixture(self.means[:, rows], noise, weights, wide)

    def quantiles(self, scores: Tensor) -> Tensor:
        """Invert the distribution function: ``y`` with ``F(y) = Phi(score)``.

        The search in `model.distributions.mixture_quantiles` bounds the error of every value. Time and memory don't
        depend on the mixture, except where the distribution function is a staircase.

        Args:
            scores: Normal scores of the levels: ``[K]`` for all rows, or ``[B, K]`` for each row.

        Returns:
            ``[B, K]``, nondecreasing in the score, exact to about 1e-6 of the mixture's standard deviation; to the
            limit of double precision where the distribution function is too flat for that.
        """
        levels = scores.tolist() if scores.dim() == 1 else None
        rising = levels is not None and levels == sorted(levels)
        scores = scores.to(self.means).clamp(-FURTHEST_SCORE, FURTHEST_SCORE).expand(self.means.shape[1], -1)
        if not scores.numel():
            return torch.empty_like(scores)
        values = mixture_quantiles(self.means, self.noise, self.weights, scores, self.wide)
        if scores.shape[1] < 2:
            return values
        # Rounding must not swap two levels that have the same value.
        if rising:
            return values.cummax(dim=1).values
        order = scores.argsort(dim=1)
        return values.scatter(1, order, values.gather(1, order).cummax(dim=1).values)

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score, in closed form (Grimit et al. 2006, equation 3).

        ``E|Y - y| - 1/2 E|Y - Y'|`` with both expectations over Gaussian components. The second one is quadratic in
        C and so computed in single precision, in units of the row's spread: to about 1e-6 of it. A wide component
        of weight w enters the first with weights 1 - w and w, and the second with their products.

        Args:
            values: ``[B]``.

        Returns:
            ``[B]``, the unit of ``means``; lower is better.
        """
        count = len(self.means)
        mean, spread = self.moments()
        noise = self.noise.expand_as(self.means)
        to_value = self.average(_absolute_moment(values - self.means, noise))
        centred, variance = ((self.means - mean) / spread).float(), (noise / spread).float().square()
        weights = None if self.weights is None else (self.weights * count).float()
        own = _absolute_moment(torch.zeros_like(centred), variance.mul(2.0).sqrt_())
        between = (own if weights is None else own * weights.square()).sum(dim=0).double()
        for shift in range(1, count // 2 + 1):
            # The pairs (i, i + shift mod C) and their mirror images; at shift = C/2 each pair occurs twice.
            apart = _absolute_moment(
                centred - centred.roll(shift, dims=0), (variance + variance.roll(shift, dims=0)).sqrt_()
            )
            if weights is not None:
                apart *= weights * weights.roll(shift, dims=0)
            between += apart.sum(dim=0).double() * (1.0 if 2 * shift == count else 2.0)
        between = spread * between / count**2
        if self.wide is not None:
            wide, weight = self.wide, self.wide.weight
            to_value = torch.lerp(to_value, _absolute_moment(values - wide.means, wide.noise), weight)
            across = (noise.square() + wide.noise.square()).sqrt()
            across = self.average(_absolute_moment(self.means - wide.means, across))
            within = 2.0 / math.sqrt(math.pi) * wide.noise  # E|Y - Y'| of one Gaussian
            between = torch.lerp(torch.lerp(between, across, weight), torch.lerp(across, within, weight), weight)
        return to_value - 0.5 * between


def _average(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.mean(dim=0)
    return (values * weights.reshape(*weights.shape, *[1] * (values.dim() - weights.dim()))).sum(dim=0)


def _absolute_moment(means: Tensor, sigma: Tensor) -> Tensor:
    """``E|X|`` for ``X ~ N(mean, sigma^2)``."""
    standardised = means / sigma
    density = torch.exp(-0.5 * standardised.square() - LOG_SQRT_2PI)
    return 2.0 * sigma * density + means * torch.erf(standardised * 0.5**0.5)
