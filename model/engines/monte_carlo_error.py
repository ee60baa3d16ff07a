"""How far an answer of S draws may be from that of ever so many: standard errors, row by row.

Mean, variance and percentiles are, to first order, averages over the draws of some value of each draw (its
influence: Hampel 1974). The draws are coupled (`model.engines.coupled_normals`), so the error of such an average isn't
its spread over the root of S: what is linear in the weights cancels. So each draw is also looked at in its mirror
image, ``2 mu - w``. Half the difference of the two is odd in ``w - mu`` and counted as if linear, half their sum is
even and counted as if quadratic; how much is left of either in a sum over the draws is known from the couplings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.distributions.mixtures import LOG_SQRT_2PI, normal_cdf
from murho.model.engines.coupled_normals import effective_counts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.distributions.predictive import Predictive

__all__ = ["MonteCarloError", "monte_carlo_error"]


@dataclass(frozen=True, slots=True)
class MonteCarloError:
    """Standard errors, for the finite number of draws, of an answer; the target's own unit, float64.

    Attributes:
        mean: ``[B]``.
        std: ``[B]``.
        percentiles: ``[B, K]``.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    percentiles: NDArray[np.float64]


def monte_carlo_error(
    drawn: Predictive, mirror: Predictive, percentiles: Tensor, *, members: int, noise: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Standard errors of mean, std and percentiles.

    Percentiles by the delta method: the error of the distribution function there over the density. Where nothing is
    known of the spread within a member (fewer than two draws of each), members count as draws of one population, which
    is rather too cautious than too bold. No error of a percentile is said to be larger than the std: between clumps
    far apart the density is nil.

    Args:
        drawn: What the draws say, draw k of member k mod M.
        mirror: What their mirror images say.
        percentiles: The percentiles of the answer, ``[B, K]``.
        members: M.
        noise: Whether the answer describes an observation, or the function alone.

    Returns:
        Three tensors: ``[B]``, ``[B]`` and ``[B, K]``.
    """
    strata = _Strata.of(len(drawn.means), members, drawn.means)
    mean = drawn.means.mean(dim=0)
    squares = [(said.means - mean).square() for said in (drawn, mirror)]
    if noise:
        squares = [
            square + said.noise.square() for square, said in zip(squares, (drawn, mirror), strict=True)
        ]
    std = squares[0].mean(dim=0).sqrt()
    of_std = strata.error(*squares) / (2.0 * std).clamp_min(torch.finfo(std.dtype).tiny)
    views = [_Distribution.of(said, drawn, noise=noise) for said in (drawn, mirror)]
    # Smooth in the function value where there is noise; a step of it, far from linear, where there is none.
    told_by = None if noise else 0.5 * (drawn.means - mirror.means)
    of_percentiles = []
    for level in percentiles.T:
        below, mirrored = (view.share_below(level) for view in views)
        error = strata.error(below, mirrored, told_by) / views[0].density(level)
        of_percentiles.append(torch.minimum(error.nan_to_num(0.0, posinf=math.inf), std))
    stacked = torch.stack(of_percentiles, dim=1) if of_percentiles else percentiles.clone()
    return strata.error(drawn.means, mirror.means), of_std, stacked


@dataclass(frozen=True, slots=True)
class _Strata:
    """Draws by member: which ``[S]``, and `model.engines.coupled_normals.effective_counts`, ``[M, 1]`` each."""

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
        columns = (
            torch.from_numpy(column).to(like).unsqueeze(1) for column in effective_counts(samples, members)
        )
        return cls(which, *columns)

    def error(self, values: Tensor, others: Tensor, told_by: Tensor | None = None) -> Tensor:
        """Standard error of an average over the draws.

        Args:
            values: What is averaged, ``[S, B]``.
            others: The same of the mirror images.
            told_by: Something odd and about linear in the weights, ``[S, B]``: of what is odd in the values only so
                much counts as linear as is proportional to it within a member. None: all of it does.

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
        if told_by is not None:
            tiny = torch.finfo(odd.dtype).tiny
            explained = self._sums(odd * told_by).square() / self._sums(told_by.square()).clamp_min(tiny)
            linear_variance = torch.minimum(explained / self.counts, odd_variance)
        # Members weigh as often as they are drawn: S that M does not divide leans to the first of them.
        lean = ((self.counts / samples - 1.0 / len(self.counts)) * centre).sum(dim=0)
        rest = even_variance + odd_variance - linear_variance
        variance = (self.linear * linear_variance + self.quadratic * rest).sum(dim=0) / samples**2
        return (variance + lean.square()).sqrt()

    def _sums(self, values: Tensor) -> Tensor:
        return values.new_zeros((len(self.counts), values.shape[1])).index_add_(0, self.members, values)


@dataclass(frozen=True, slots=True)
class _Distribution:
    """The distribution function that each draw has, ``[S, B]``, by way of K Gaussians ``[S * K, B]``."""

    said: Predictive
    means: Tensor
    noise: Tensor
    weights: Tensor | None
    noisy: bool

    @classmethod
    def of(cls, said: Predictive, drawn: Predictive, *, noise: bool) -> _Distribution:
        if noise:
            return cls(said, said.mixture.means, said.mixture.noise, said.mixture.weights, noisy=True)
        # A function value is a point, a density is one of points smoothed: by half of what suits the middle of a
        # Gaussian (Silverman 1986, equation 3.28), because percentiles are asked for in the tails.
        spread = drawn.means.std(dim=0, correction=0)
        width = 0.53 * spread * len(drawn.means) ** -0.2
        return cls(said, said.means, width.clamp_min(torch.finfo(width.dtype).tiny), None, noisy=False)

    def share_below(self, values: Tensor) -> Tensor:
        """``P(y <= value)`` under each draw, ``[S, B]`` for values ``[B]``."""
        if not self.noisy:
            return (self.means <= values).to(self.means)
        return self._of_draws(normal_cdf(self._standardised(values)))

    def density(self, values: Tensor) -> Tensor:
        """Density of y under all of the draws, ``[B]`` for values ``[B]``."""
        components = torch.exp(-0.5 * self._standardised(values).square() - LOG_SQRT_2PI) / self.noise
        slope = self.said.transform.log_slope(values).exp() if self.noisy else 1.0
        return self._of_draws(components).mean(dim=0) * slope

    def _standardised(self, values: Tensor) -> Tensor:
        return ((self.said.transform.forward(values) if self.noisy else values) - self.means) / self.noise

    def _of_draws(self, components: Tensor) -> Tensor:
        if self.weights is None:
            return components
        samples, batch = self.said.means.shape
        return (components * self.weights * samples).view(samples, -1, batch).sum(dim=1)
