"""Monte Carlo standard errors of an answer from S draws, row by row.

To first order, mean, variance and percentiles are averages over the draws of one value per draw (its influence:
Hampel 1974). The draws are coupled (`model.predictive.normals`): terms linear in the weights cancel in such an
average, and so its error is not the spread over the root of S. The values are therefore also computed for the mirror
image of each draw, ``2 mu - w``. Half the difference of the two values is odd in ``w - mu`` and treated as linear; half
their sum is even and treated as quadratic. The coupling gives the variance of the sum over draws of either part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.distributions.mixtures import LOG_SQRT_2PI, normal_cdf
from murho.model.predictive.normals import effective_counts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.distributions.predictive import Predictive

__all__ = [
    "MonteCarloError",
    "error_of_averages",
    "monte_carlo_error",
]

STEP_WIDTH = 0.0625
"""Width of the step above a percentile without noise, in widths of the density's kernel. Without a width, rounding
would decide whether the draw that is the percentile lies below it. All draws at an upper limit do."""


@dataclass(frozen=True, slots=True)
class MonteCarloError:
    """Monte Carlo standard errors of an answer; in the target's own unit, float64.

    Attributes:
        mean: Standard errors of the mean, ``[B]``.
        std: Standard errors of std, ``[B]``.
        percentiles: Standard errors of the percentiles, ``[B, K]``.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    percentiles: NDArray[np.float64]


def error_of_averages(drawn: Tensor, mirror: Tensor, members: int) -> Tensor:
    """Standard errors of averages over the draws.

    Args:
        drawn: One value per draw, ``[S, B]``; draw k is of member k mod M.
        mirror: The same for the mirror images.
        members: M.

    Returns:
        ``[B]``.
    """
    return _Strata.of(len(drawn), members, drawn).error(drawn, mirror)


def monte_carlo_error(
    drawn: Predictive,
    mirror: Predictive,
    percentiles: Tensor,
    *,
    members: int,
    noise: bool,
    calibrated_std: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Standard errors of mean, std and percentiles.

    A calibrated std is the raw one times a ratio, and so is its error: the error of the ratio itself is left out. The
    error of a percentile follows from the delta method: the error of the distribution function there, over the
    density. It is at most std, because the density between distant clumps is 0. With fewer than two draws of each
    member the spread within a member is unknown: all draws then count as one population, which gives rather too large
    errors. A percentile's error rests on the draws that lie as far out. Within ``500 / S`` % of either end these are
    few, and a single answer's error may be a tenth of the true one or twice as large.

    Args:
        drawn: Predictive of the draws; draw k is of member k mod M.
        mirror: Predictive of their mirror images.
        percentiles: The percentiles of the answer, ``[B, K]``.
        members: M.
        noise: Whether the answer describes an observation, or the function alone.
        calibrated_std: The std of the answer, if it is calibrated, ``[B]``; None: it is raw.

    Returns:
        Three tensors: ``[B]``, ``[B]`` and ``[B, K]``.
    """
    strata = _Strata.of(len(drawn.means), members, drawn.means)
    mean = drawn.means.mean(dim=0)
    squares = [(predictive.means - mean).square() for predictive in (drawn, mirror)]
    if noise:
        squares = [
            square + predictive.noise.square() for square, predictive in zip(squares, (drawn, mirror), strict=True)
        ]
    std, tiny = squares[0].mean(dim=0).sqrt(), torch.finfo(mean.dtype).tiny
    of_variance = strata.error(*squares)
    # The root of the variance plus its error, minus the root: of_variance / (2 std) where that is small, and finite
    # for a std of 0, which a single draw has.
    of_std = of_variance / (std + (std.square() + of_variance).sqrt()).clamp_min(tiny)
    if calibrated_std is not None:
        of_std = of_std * (calibrated_std / torch.hypot(*drawn.moments[1:]).clamp_min(tiny))
    of_mean = strata.error(drawn.means, mirror.means)
    if len(drawn.means) == 1 and not noise:  # one function value: it is the mean and every percentile
        return of_mean, of_std, of_mean.unsqueeze(1).expand_as(percentiles).contiguous()
    views = [_Distribution.of(predictive, drawn, noise=noise) for predictive in (drawn, mirror)]
    # With noise the share below a level is smooth in the function value; without noise it is a step, far from linear.
    regressor = None if noise else 0.5 * (drawn.means - mirror.means)
    of_percentiles = []
    for level in percentiles.T:
        below, mirrored = (view.share_below(level) for view in views)
        error = strata.error(below, mirrored, regressor) / views[0].density(level)
        of_percentiles.append(torch.minimum(error.nan_to_num(0.0, posinf=math.inf), std))
    stacked = torch.stack(of_percentiles, dim=1) if of_percentiles else percentiles.clone()
    return of_mean, of_std, stacked


@dataclass(frozen=True, slots=True)
class _Strata:
    """Draws by member: the member of each, ``[S]``, and `coupled_normals.effective_counts`, ``[M, 1]`` each."""

    members: Tensor
    counts: Tensor
    linear: Tensor
    quadratic: Tensor

    @classmethod
    def of(cls, samples: int, members: int, like: Tensor) -> _Strata:
        if samples < 2 * members:
            everything = like.new_full((1, 1), samples)
            return cls(like.new_zeros(samples, dtype=torch.long), everything, everything, everything)
        which = torch.arange(samples, device=like.device) % members
        columns = (torch.from_numpy(column).to(like).unsqueeze(1) for column in effective_counts(samples, members))
        return cls(which, *columns)

    def error(self, values: Tensor, others: Tensor, regressor: Tensor | None = None) -> Tensor:
        """Standard error of an average over the draws.

        Args:
            values: One value per draw, ``[S, B]``, whose average is taken.
            others: The same for the mirror images, ``[S, B]``.
            regressor: Values that are odd and about linear in the weights, ``[S, B]``. Of the odd part of ``values``
                only what is proportional to them within a member counts as linear. None: all of it does.

        Returns:
            ``[B]``.
        """
        samples = len(values)
        values, others = values.expand(samples, -1), others.expand(samples, -1)
        odd, even = 0.5 * (values - others), 0.5 * (values + others)
        even = even - even.mean(dim=0)
        centre = self._sums(even) / self.counts
        even_variance = (self._sums(even.square()) - self.counts * centre.square()).clamp_min(0.0)
        even_variance = even_variance / (self.counts - self.quadratic / self.counts).clamp_min(1.0)
        odd_variance = self._sums(odd.square()) / self.counts
        linear_variance = odd_variance
        if regressor is not None:
            tiny = torch.finfo(odd.dtype).tiny
            explained = self._sums(odd * regressor).square() / self._sums(regressor.square()).clamp_min(tiny)
            linear_variance = torch.minimum(explained / self.counts, odd_variance)
        # A member's weight is its share of the draws: if M does not divide S, the first members weigh more.
        bias = ((self.counts / samples - 1.0 / len(self.counts)) * centre).sum(dim=0)
        rest = even_variance + odd_variance - linear_variance
        variance = (self.linear * linear_variance + self.quadratic * rest).sum(dim=0) / samples**2
        return (variance + bias.square()).sqrt()

    def _sums(self, values: Tensor) -> Tensor:
        return values.new_zeros((len(self.counts), values.shape[1])).index_add_(0, self.members, values)


@dataclass(frozen=True, slots=True)
class _Distribution:
    """The distribution function of each draw, ``[S, B]``, as a mixture of K Gaussians, ``[S * K, B]``."""

    predictive: Predictive
    means: Tensor
    noise: Tensor
    weights: Tensor | None
    noisy: bool

    @classmethod
    def of(cls, predictive: Predictive, drawn: Predictive, *, noise: bool) -> _Distribution:
        if noise:
            mixture = predictive.mixture
            whole = len(mixture.means) // len(predictive.means) * len(predictive.means)
            widths, shares = (part.expand_as(mixture.means)[:whole] for part in (mixture.noise, mixture.shares))
            return cls(predictive, mixture.means[:whole], widths, shares, noisy=True)
        # Function values are points: a kernel smooths them to a density. Its width is half of the one that suits the
        # middle of a Gaussian (Silverman 1986, equation 3.28), because percentiles are mostly in the tails.
        spread = drawn.means.std(dim=0, correction=0)
        width = 0.53 * spread * len(drawn.means) ** -0.2
        width = width.clamp_min(torch.finfo(width.dtype).tiny)
        return cls(predictive, predictive.means, width, None, noisy=False)

    def share_below(self, values: Tensor) -> Tensor:
        """What each draw adds to ``P(y <= value)``, ``[S, B]`` for values ``[B]``: its average is that, to first order.

        The wide component follows from all draws together. What each draw changes of it is left out.
        """
        if not self.noisy:
            return (1.0 + self._standardised(values) / STEP_WIDTH).clamp(0.0, 1.0)
        return self._of_draws(normal_cdf(self._standardised(values)))

    def density(self, values: Tensor) -> Tensor:
        """Density of y, averaged over the draws, ``[B]`` for values ``[B]``."""
        components = torch.exp(-0.5 * self._standardised(values).square() - LOG_SQRT_2PI) / self.noise
        density = self._of_draws(components).mean(dim=0)
        return density * (self.predictive.transform.log_slope(values).exp() if self.noisy else 1.0)

    def _forward(self, values: Tensor) -> Tensor:
        return self.predictive.transform.forward(values) if self.noisy else values

    def _standardised(self, values: Tensor) -> Tensor:
        return (self._forward(values) - self.means) / self.noise

    def _of_draws(self, components: Tensor) -> Tensor:
        if self.weights is None:
            return components
        samples, batch = self.predictive.means.shape
        return (components * self.weights * samples).view(samples, -1, batch).sum(dim=1)
