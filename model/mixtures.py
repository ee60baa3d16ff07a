"""Mixtures of Gaussians, one for each of B rows: moments, distribution function, quantiles, scores.

Nothing here is sampled: percentiles invert the mixture's distribution function, scores are closed forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Mixture", "normal_cdf"]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_ITERATIONS = 100
_QUICK_STEPS = 4
_QUICK_TOLERANCE = 5e-4
"""Of the last step where components are 1 wide; the error left is its square over about twice the width."""
_FLAT = 2.0
"""The most that a tail may be of its density (times sqrt(2 pi)): beyond, F is too flat for single precision."""
_TILE_VALUES = 2**17
"""Values of components worked on at a time: two buffers of 512 KiB, about a core's second cache."""


def normal_cdf(values: Tensor) -> Tensor:
    """The standard normal distribution function, accurate in the lower tail.

    By way of erfc, which is several times faster than PyTorch's own ``ndtr``.
    """
    return 0.5 * torch.erfc(values * -(0.5**0.5))


@dataclass(frozen=True, slots=True)
class Mixture:
    """C Gaussian components for each of B rows; float64, all in the same unit.

    Attributes:
        means: Means of the components, ``[C, B]``.
        noise: Their standard deviations, broadcastable to ``[C, B]``, positive.
        weights: Their weights, ``[C, B]``, of sum 1 over C; None: all weigh the same.
    """

    means: Tensor
    noise: Tensor
    weights: Tensor | None = None

    def average(self, values: Tensor) -> Tensor:
        """Mean over the components of values ``[C, B, ...]``; ``[B, ...]``."""
        return _average(values, self.weights)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each row, ``[B]`` each."""
        mean = self.average(self.means)
        variance = self.average((self.means - mean).square() + self.noise.square())
        return mean, variance.sqrt()

    def normal_score(self, values: Tensor) -> Tensor:
        """``z = Phi^-1(F(y))``: where a value stands in its row's mixture, as a standard normal score.

        Computed from whichever tail is the smaller, so that it is accurate to about 37 standard deviations.

        Args:
            values: ``[..., B]``.

        Returns:
            The shape of ``values``, within -37 and 37.
        """
        standardised = (values.unsqueeze(-2) - self.means) / self.noise
        share = 1.0 / len(self.means) if self.weights is None else self.weights
        lower = (normal_cdf(standardised) * share).sum(dim=-2)
        upper = (normal_cdf(-standardised) * share).sum(dim=-2)
        scores = torch.where(lower < upper, torch.special.ndtri(lower), -torch.special.ndtri(upper))
        return scores.clamp(-37.0, 37.0)

    def log_density(self, values: Tensor) -> Tensor:
        """Log density at one value a row.

        Args:
            values: ``[B]``.

        Returns:
            ``[B]``, nats, for the unit of ``means``.
        """
        standardised = (values - self.means) / self.noise
        components = -0.5 * standardised.square() - torch.log(self.noise) - LOG_SQRT_2PI
        if self.weights is None:
            return torch.logsumexp(components, dim=0) - math.log(len(self.means))
        return torch.logsumexp(components + torch.log(self.weights), dim=0)

    def of_rows(self, rows: slice | Tensor) -> Mixture:
        """Of some rows alone, by a slice, a mask ``[B]`` or their numbers."""
        noise = self.noise if self.noise.shape[-1] == 1 else self.noise[..., rows]
        return Mixture(self.means[:, rows], noise, None if self.weights is None else self.weights[:, rows])

    def quantiles(self, scores: Tensor) -> Tensor:
        """Inverts the distribution function: ``y`` with ``F(y) = Phi(score)``.

        Newton's method in the scale of normal scores, where the function is a straight line for a single
        Gaussian. Mostly two steps in single precision do, see `_quick_quantiles`; the rows where they do not, or
        where single precision is not enough, are solved inside a bracket, see `_careful_quantiles`.

        Args:
            scores: Normal scores of the levels asked for, ``[K]`` (the same for every row).

        Returns:
            ``[B, K]``, nondecreasing in the score, exact to about 1e-6 of the mixture's standard deviation.
        """
        scores = scores.to(self.means).clamp(-37.0, 37.0)
        mean, spread = self.moments()
        batch, values = len(mean), max(1, len(self.means) * len(scores))
        most = max(1, min(batch, _TILE_VALUES // values))
        scratch = self.means.new_empty((2, most * values), dtype=torch.float32)
        parts = []
        for start in range(0, max(1, batch), most):
            rows = slice(start, start + most)
            some = self if most >= batch else self.of_rows(rows)
            parts.append(some._quick_quantiles(scores, mean[rows], spread[rows], scratch))
        value, good = parts[0] if len(parts) == 1 else (torch.cat(part) for part in zip(*parts, strict=True))
        if not bool(good.all()):
            for hard in (~good).nonzero().squeeze(1).split(most):
                value[hard] = self.of_rows(hard)._careful_quantiles(scores, mean[hard], spread[hard])
        # Rounding must not turn two levels of the same value round.
        if len(scores) > 1:
            order = scores.argsort()
            value[:, order] = value[:, order].cummax(dim=1).values
        return torch.addcmul(mean.unsqueeze(-1), spread.unsqueeze(-1), value)

    def _quick_quantiles(
        self, scores: Tensor, mean: Tensor, spread: Tensor, scratch: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A few Newton steps in single precision, from the expansion of Cornish & Fisher (1938) by the skewness.

        What single precision gets wrong of the smaller tail, ``epsilon F``, moves the quantile by ``epsilon F / f``:
        no matter but where F is flat. What it gets wrong of the components moves the quantile by no more than that.

        Args:
            scores: ``[K]``.
            mean: The mixture's, ``[B]``.
            spread: Its standard deviation, ``[B]``.
            scratch: Two buffers of ``K * C * B`` numbers, float32.

        Returns:
            Quantiles in units of the spread around the mean, ``[B, K]``, and whether a row's are good, ``[B]``.
        """
        per_spread = spread.reciprocal()
        centred = (self.means - mean).float().mul_(per_spread.float())  # [C, B]
        widths = (self.noise * per_spread).float()
        weights = None if self.weights is None else self.weights.float()
        half = 0.5 if weights is not None else 0.5 / len(centred)
        levels = scores.unsqueeze(-1)  # [K, 1]
        value = _cornish_fisher(levels, centred, widths, weights)  # [K, B]
        tolerance = widths.amin(dim=0).clamp_max_(1.0).sqrt_().mul_(_QUICK_TOLERANCE)
        # Work in the smaller tail, where nothing cancels.
        sign = torch.where(levels > 0, 1.0, -1.0).to(scores)
        density_weight = widths.reciprocal_()
        slopes = (density_weight * 0.5**0.5).mul(sign.float().unsqueeze(-1))  # [K, C, B]
        if weights is not None:
            density_weight = density_weight * weights
        arguments, density = (
            buffer[: len(levels) * centred.numel()].view(len(levels), *centred.shape) for buffer in scratch
        )
        for step in range(_QUICK_STEPS):
            near = value.float()
            torch.sub(near.unsqueeze(1), centred, out=arguments).mul_(slopes)
            torch.mul(arguments, arguments, out=density).neg_().exp_().mul_(density_weight)
            slope = density.sum(dim=1).double()
            # erf takes a third of the time of erfc. It is nothing for a tail, but near enough for a first step.
            tails = arguments.erf_() if step == 0 else arguments.erfc_()
            tail = (tails if weights is None else tails.mul_(weights)).sum(dim=1).double()
            tail = 0.5 - half * tail if step == 0 else half * tail
            slope.mul_(2.0 * half)
            reached = torch.special.ndtri(tail).mul_(sign).neg_()
            # The density times the slope of the normal score, both without their 1 / sqrt(2 pi).
            change = (reached - levels).div_(reached.square().mul_(0.5).exp_().mul_(slope))
            value = near.double().sub_(change)
            if step == 0:
                value = torch.where(change.abs() < 1.0, value, near)
                continue
            # False for NaN as well.
            good = (change.abs_().le(tolerance) & tail.le(slope.mul_(_FLAT))).all(dim=0)
            if bool(good.all()):
                break
        return value.T, good

    def _careful_quantiles(self, scores: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        """Newton's method inside a bracket that always holds the root; arguments as in `_quick_quantiles`.

        The mixture's quantile lies between the smallest and the largest of its components' quantiles. A step that
        leaves the bracket is replaced by bisection. Single precision brings the value near, double precision
        finishes it, mostly in one step.

        Returns:
            In units of the spread around the mean, ``[B, K]``.
        """
        spread = spread.unsqueeze(-1)
        # In units of the row's own spread around its mean, so that single precision is enough for any target.
        centred = (self.means - mean).unsqueeze(-1) / spread  # [C, B, 1]
        widths = self.noise.expand_as(self.means).unsqueeze(-1) / spread
        weights = None if self.weights is None else self.weights.unsqueeze(-1)
        components = centred + widths * scores
        lower, upper = components.amin(dim=0), components.amax(dim=0)  # [B, K]
        value = scores.expand_as(lower).clamp(lower, upper)
        near = _solve(
            *(tensor.float() for tensor in (centred, widths, scores, lower, upper, value)),
            weights=None if weights is None else weights.float(),
            tolerance=1e-3,
        )
        start = near.double().clamp(lower, upper)
        return _solve(centred, widths, scores, lower, upper, start, weights=weights, tolerance=2e-6)

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score, in closed form (Grimit et al. 2006, equation 3).

        ``E|Y - y| - 1/2 E|Y - Y'|`` with both expectations over Gaussian components; quadratic in C, and so
        the second one in single precision, in units of the row's own spread: to about 1e-6 of it.

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
            # The pairs (i, i + shift mod C) and their mirror images; at shift = C/2 each pair comes twice.
            apart = _absolute_moment(
                centred - centred.roll(shift, dims=0), (variance + variance.roll(shift, dims=0)).sqrt_()
            )
            if weights is not None:
                apart *= weights * weights.roll(shift, dims=0)
            between += apart.sum(dim=0).double() * (1.0 if 2 * shift == count else 2.0)
        return to_value - 0.5 * spread * between / count**2


def _average(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.mean(dim=0)
    return (values * weights.reshape(*weights.shape, *[1] * (values.dim() - weights.dim()))).sum(dim=0)


def _cornish_fisher(levels: Tensor, centred: Tensor, widths: Tensor, weights: Tensor | None) -> Tensor:
    """A standardised mixture's quantiles by its skewness, where this is moderate.

    Args:
        levels: Normal scores, ``[K, 1]``.
        centred: Means of the components, ``[C, B]``.
        widths: Their standard deviations, broadcastable to them.
        weights: Their weights, ``[C, B]``, or None.

    Returns:
        ``[K, B]``, float64.
    """
    third = torch.addcmul(centred.square(), widths, widths, value=3.0).mul_(centred)
    skewness = _average(third, weights).double().clamp_(-1.0, 1.0)
    return torch.addcmul(levels, levels.square().sub_(1.0).div_(6.0), skewness)


def _absolute_moment(means: Tensor, sigma: Tensor) -> Tensor:
    """``E|X|`` for ``X ~ N(mean, sigma^2)``."""
    standardised = means / sigma
    density = torch.exp(-0.5 * standardised.square() - LOG_SQRT_2PI)
    return 2.0 * sigma * density + means * torch.erf(standardised * 0.5**0.5)


def _solve(
    means: Tensor,
    widths: Tensor,
    scores: Tensor,
    lower: Tensor,
    upper: Tensor,
    value: Tensor,
    *,
    weights: Tensor | None,
    tolerance: float,
) -> Tensor:
    """Safeguarded Newton steps until every step is below the tolerance; the error is then about its square."""
    sign = torch.where(scores > 0, -1.0, 1.0).to(scores)  # work in the smaller tail, where nothing cancels
    for _ in range(_ITERATIONS):
        standardised = (value - means) / widths  # [C, B, K]
        tail = _average(normal_cdf(standardised * sign), weights)
        density = _average(torch.exp(-0.5 * standardised.square() - LOG_SQRT_2PI) / widths, weights)
        reached = sign * torch.special.ndtri(tail)
        excess = reached - scores  # > 0: the value is above the root
        upper = torch.where(excess >= 0, value, upper)
        lower = torch.where(excess <= 0, value, lower)
        newton = value - excess / (density * torch.exp(0.5 * reached.square() + LOG_SQRT_2PI))
        close = (newton - value).abs() <= tolerance
        inside = (newton > lower) & (newton < upper)  # False for NaN as well
        halfway = 0.5 * (lower + upper)
        value = torch.where(close | inside, newton, halfway).clamp(lower, upper)
        # Between components far apart the function is flat and no step is small: there the bracket decides.
        pending = ~(close | (upper - lower <= tolerance)).all(dim=1)
        left = int(pending.sum())
        if left == 0:
            break
        if 2 * left <= len(pending):  # few rows are hard: go on with those alone
            rows = pending.nonzero().squeeze(1)
            value[rows] = _solve(
                means[:, rows],
                widths[:, rows],
                scores,
                lower[rows],
                upper[rows],
                value[rows],
                weights=None if weights is None else weights[:, rows],
                tolerance=tolerance,
            )
            break
    return value
