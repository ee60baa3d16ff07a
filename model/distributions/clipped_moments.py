"""Mean and standard deviation of ``clip(x, a, b)`` for a Gaussian x, in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from murho.model.distributions.mixtures import LOG_SQRT_2PI, normal_cdf

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FURTHEST", "clipped_gaussian_moments", "line_moments"]

FURTHEST = 38.0
"""Normal score beyond which a Gaussian has no mass in double precision."""


def clipped_gaussian_moments(means: Tensor, noise: Tensor, minimum: float, maximum: float) -> tuple[Tensor, Tensor]:
    """Moments of a Gaussian clipped to an interval (a censored Gaussian: Greene, "Econometric Analysis", chapter 19).

    In units of the noise, from the point c of the interval that is nearest to the mean: the clipped value is
    ``c + U - L`` with ``U = min((x - c)+, b - c)`` and ``L = min((c - x)+, c - a)``, one of which is 0. With
    ``h(t) = E[(x - t)+] = phi(t) - t Q(t)`` and ``g(t) = E[((x - t)+)^2] = Q(t) - t h(t)``, for Q the upper tail of a
    standard Gaussian: ``E[U] = h(c) - h(b)`` and ``E[U^2] = g(c) - g(b) - 2 (b - c) h(b)``; L by symmetry. Far beyond
    a limit nothing cancels: h and g are small there themselves.

    Args:
        means: Any shape, float64.
        noise: Standard deviations, broadcastable to ``means``.
        minimum: a; may be -inf.
        maximum: b; may be inf.

    Returns:
        Mean and standard deviation, the shape of ``means``.
    """
    lower, upper = (((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (minimum, maximum))
    centre = torch.zeros_like(lower).clamp(lower, upper)
    first_up, second_up = _part(centre, upper)
    first_down, second_down = _part(-centre, -lower)
    first = first_up - first_down
    variance = (second_up + second_down - first.square()).clamp_min(0.0)
    mean = means.clamp(minimum, maximum) + noise * first
    return mean.clamp(minimum, maximum), noise * variance.sqrt()


def _part(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of ``min((x - start)+, end - start)`` for a standard Gaussian x."""
    (first, second), (first_beyond, second_beyond) = _excess(start), _excess(end)
    return first - first_beyond, second - second_beyond - 2.0 * (end - start) * first_beyond


def _excess(threshold: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of ``(x - threshold)+`` for a standard Gaussian x."""
    above = normal_cdf(-threshold)
    first = torch.exp(-0.5 * threshold.square() - LOG_SQRT_2PI) - threshold * above
    return first, above - threshold * first


def line_moments(means: Tensor, noise: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """``E[(1 + z)^k; lower < z < upper]`` for a Gaussian z and k of 1 and 2; the shape of ``means``.

    Args:
        means: Any shape, float64.
        noise: Standard deviations, the shape of ``means``.
        lower: May be -inf.
        upper: May be inf.
    """
    ends = [((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (lower, upper)]
    share = normal_cdf(-ends[0]) - normal_cdf(-ends[1])
    low, high = (torch.exp(-0.5 * end.square() - LOG_SQRT_2PI) for end in ends)
    line = 1.0 + means
    first = line * share + noise * (low - high)
    second = (line.square() + noise.square()) * share
    second = second + noise * ((2.0 * line + noise * ends[0]) * low - (2.0 * line + noise * ends[1]) * high)
    return first, second
