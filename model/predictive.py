"""The predictive distribution: an equal-weight mixture over draws of Gaussian observations.

Pure functions of ``means`` ``[S, B]`` (the function values) and ``noise`` ``[S, B]`` or broadcastable to it (the
observation noise given each draw), both float64 and in the same unit. Nothing here is sampled: percentiles
invert the mixture's distribution function, scores are closed forms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "crps",
    "exceedance",
    "function_exceedance",
    "function_quantiles",
    "log_density",
    "normal_cdf",
    "normal_score",
    "quantiles",
    "split",
]

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_ITERATIONS = 100


def normal_cdf(values: Tensor) -> Tensor:
    """The standard normal distribution function, accurate in the lower tail.

    By way of erfc, which is several times faster than PyTorch's own ``ndtr``.
    """
    return 0.5 * torch.erfc(values * -(0.5**0.5))


def split(means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and the law of total variance: ``Var[y] = Var_draws[mean] + E_draws[noise^2]``.

    Args:
        means: Function values, ``[S, B]``.
        noise: Observation noise, broadcastable to ``[S, B]``.

    Returns:
        ``mean``, ``epistemic_std`` and ``aleatoric_std``, each ``[B]``.
    """
    mean = means.mean(dim=0)
    epistemic = (means - mean).square().mean(dim=0).sqrt()
    aleatoric = noise.expand_as(means).square().mean(dim=0).sqrt()
    return mean, epistemic, aleatoric


def normal_score(means: Tensor, noise: Tensor, values: Tensor) -> Tensor:
    """``z = Phi^-1(F(y))``: where a value stands in its row's predictive, as a standard normal score.

    Computed from whichever tail is the smaller, so that it is accurate to about 37 standard deviations.

    Args:
        means: ``[S, B]``.
        noise: Broadcastable to ``[S, B]``.
        values: ``[..., B]``.

    Returns:
        The shape of ``values``, within -37 and 37.
    """
    standardised = (values.unsqueeze(-2) - means) / noise
    lower, upper = normal_cdf(standardised).mean(dim=-2), normal_cdf(-standardised).mean(dim=-2)
    scores = torch.where(lower < upper, torch.special.ndtri(lower), -torch.special.ndtri(upper))
    return scores.clamp(-37.0, 37.0)


def quantiles(means: Tensor, noise: Tensor, scores: Tensor) -> Tensor:
    """Inverts the mixture's distribution function: ``y`` with ``F(y) = Phi(score)``.

    Newton's method in the scale of normal scores, where the function is a straight line for a single
    Gaussian, inside a bracket that always holds the root: the mixture's quantile lies between the smallest
    and the largest of its components' quantiles. A step that leaves the bracket is replaced by bisection.
    Single precision brings the value near, double precision finishes it, mostly in one step.

    Args:
        means: ``[S, B]``, float64.
        noise: Broadcastable to ``[S, B]``, positive.
        scores: Normal scores of the levels asked for, ``[K]`` (the same for every row).

    Returns:
        ``[B, K]``, nondecreasing in the score, exact to about 1e-6 of the predictive's spread.
    """
    scores = scores.to(means).clamp(-37.0, 37.0)
    mean, epistemic, aleatoric = split(means, noise)
    spread = (epistemic.square() + aleatoric.square()).sqrt().unsqueeze(-1)
    # In units of the row's own spread around its mean, so that single precision is enough for any target.
    centred = (means - mean).unsqueeze(-1) / spread  # [S, B, 1]
    widths = noise.expand_as(means).unsqueeze(-1) / spread
    components = centred + widths * scores
    lower, upper = components.amin(dim=0), components.amax(dim=0)  # [B, K]
    value = scores.expand_as(lower).clamp(lower, upper)
    near = _solve(
        *(tensor.float() for tensor in (centred, widths, scores, lower, upper, value)), tolerance=1e-3
    )
    value = _solve(centred, widths, scores, lower, upper, near.double().clamp(lower, upper), tolerance=2e-6)
    # Rounding must not turn two levels of the same value round.
    order = scores.argsort()
    value[:, order] = value[:, order].cummax(dim=1).values
    return mean.unsqueeze(-1) + spread * value


def _solve(
    means: Tensor,
    widths: Tensor,
    scores: Tensor,
    lower: Tensor,
    upper: Tensor,
    value: Tensor,
    *,
    tolerance: float,
) -> Tensor:
    """Safeguarded Newton steps until every step is below the tolerance; the error is then about its square."""
    sign = torch.where(scores > 0, -1.0, 1.0).to(scores)  # work in the smaller tail, where nothing cancels
    for _ in range(_ITERATIONS):
        standardised = (value - means) / widths  # [S, B, K]
        tail = normal_cdf(standardised * sign).mean(dim=0)
        density = (torch.exp(-0.5 * standardised.square() - _LOG_SQRT_2PI) / widths).mean(dim=0)
        reached = sign * torch.special.ndtri(tail)
        excess = reached - scores  # > 0: the value is above the root
        upper = torch.where(excess >= 0, value, upper)
        lower = torch.where(excess <= 0, value, lower)
        newton = value - excess / (density * torch.exp(0.5 * reached.square() + _LOG_SQRT_2PI))
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
                tolerance=tolerance,
            )
            break
    return value


def function_quantiles(means: Tensor, levels: Tensor) -> Tensor:
    """Percentiles of the function values alone: linear interpolation between their order statistics.

    Args:
        means: ``[S, B]``.
        levels: Probabilities, ``[K]``.

    Returns:
        ``[B, K]``.
    """
    ordered = means.sort(dim=0).values
    position = levels.to(means) * (len(ordered) - 1)
    below = position.floor().long().clamp(0, len(ordered) - 1)
    above = (below + 1).clamp_max(len(ordered) - 1)
    weight = (position - below).unsqueeze(-1)
    return torch.lerp(ordered[below], ordered[above], weight).T


def exceedance(
    means: Tensor,
    noise: Tensor,
    thresholds: Tensor,
    recalibrate: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """``P(y > t)`` of every row.

    Args:
        means: ``[S, B]``.
        noise: Broadcastable to ``[S, B]``.
        thresholds: ``[T]``, the unit of ``means``.
        recalibrate: Maps raw normal scores to calibrated ones; none by default.

    Returns:
        ``[B, T]``, between 0 and 1.
    """
    values = thresholds.to(means).unsqueeze(-1).expand(-1, means.shape[1])
    scores = normal_score(means, noise, values)
    if recalibrate is not None:
        scores = recalibrate(scores)
    return normal_cdf(-scores).T


def function_exceedance(means: Tensor, thresholds: Tensor) -> Tensor:
    """The share of draws whose function value exceeds each threshold, ``[B, T]``."""
    return (means.unsqueeze(-1) > thresholds.to(means)).to(means.dtype).mean(dim=0)


def log_density(means: Tensor, noise: Tensor, values: Tensor) -> Tensor:
    """Log density of the mixture at one value a row.

    Args:
        means: ``[S, B]``.
        noise: Broadcastable to ``[S, B]``.
        values: ``[B]``.

    Returns:
        ``[B]``, nats, for the unit of ``means``.
    """
    standardised = (values - means) / noise
    components = -0.5 * standardised.square() - torch.log(noise) - _LOG_SQRT_2PI
    return torch.logsumexp(components, dim=0) - math.log(len(means))


def _absolute_moment(means: Tensor, sigma: Tensor) -> Tensor:
    """``E|X|`` for ``X ~ N(mean, sigma^2)``."""
    standardised = means / sigma
    density = torch.exp(-0.5 * standardised.square() - _LOG_SQRT_2PI)
    return 2.0 * sigma * density + means * torch.erf(standardised * 0.5**0.5)


def crps(means: Tensor, noise: Tensor, values: Tensor) -> Tensor:
    """Continuous ranked probability score of the mixture, in closed form (Grimit et al. 2006, equation 3).

    ``E|Y - y| - 1/2 E|Y - Y'|`` with both expectations over Gaussian components; quadratic in S, and so the
    second one in single precision, in units of the row's own spread: to about 1e-6 of it.

    Args:
        means: ``[S, B]``.
        noise: Broadcastable to ``[S, B]``.
        values: ``[B]``.

    Returns:
        ``[B]``, the unit of ``means``; lower is better.
    """
    samples = len(means)
    mean, epistemic, aleatoric = split(means, noise)
    spread = (epistemic.square() + aleatoric.square()).sqrt()
    noise = noise.expand_as(means)
    to_value = _absolute_moment(values - means, noise).mean(dim=0)
    centred, variance = ((means - mean) / spread).float(), (noise / spread).float().square()
    between = _absolute_moment(torch.zeros_like(means), noise * 2.0**0.5 / spread).sum(dim=0)
    for shift in range(1, samples // 2 + 1):
        # The pairs (i, i + shift mod S) and their mirror images; at shift = S/2 each pair comes twice.
        apart = _absolute_moment(
            centred - centred.roll(shift, dims=0), (variance + variance.roll(shift, dims=0)).sqrt_()
        )
        between += apart.sum(dim=0).double() * (1.0 if 2 * shift == samples else 2.0)
    return to_value - 0.5 * spread * between / samples**2
