"""Quantiles of mixtures of Gaussians in PyTorch: bracketed Newton steps in double precision.

The search for a level starts from a Cornish-Fisher guess. It ends with a Taylor step that is proved to be accurate
enough (`quantile_steps.taylor_step`). Until then it takes steps in normal scores, inside a bracket. Regular bisection
shrinks the bracket even where these steps fail. The compiled engine uses the same steps, row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from murho.model.distributions.quantile_steps import (
    DOUBLE,
    SQRT_HALF,
    cornish_fisher,
    score_step,
    taylor_step,
    with_gaussian,
)

if TYPE_CHECKING:
    from murho.model.distributions.wide_component import WideComponent

__all__ = ["StandardMixture", "mixture_quantiles"]

TILE_VALUES, DEVICE_TILE_VALUES = 2**18, 2**22
"""Rows times components times levels of a tile, on a CPU (2 MiB in each of a few buffers) and on a GPU."""
ITERATIONS = 200
FREE_STEPS = 4
"""Steps before bisection sets in; after them every third step is a bisection."""


def mixture_quantiles(
    means: Tensor,
    noise: Tensor,
    weights: Tensor | None,
    scores: Tensor,
    wide: WideComponent | None = None,
    *,
    tile_values: int | None = None,
) -> Tensor:
    """Invert distribution functions: ``y`` with ``F(y) = Phi(score)``.

    Args:
        means: ``[C, B]``, float64.
        noise: Standard deviations, broadcastable to ``[C, B]``.
        weights: ``[C, B]``, of sum 1 over C; None: equal weights.
        scores: Normal scores, within -37 and 37, ``[B, K]``.
        wide: One more component; None: there is none.
        tile_values: Rows times components times levels of a tile; the default suits the device.

    Returns:
        ``[B, K]``, to 2e-7 of the mixture's standard deviation; to the limit of double precision where the
        distribution function is too flat for that.
    """
    values = torch.empty_like(scores)
    tile_values = tile_values or (TILE_VALUES if means.device.type == "cpu" else DEVICE_TILE_VALUES)
    at_a_time = max(1, tile_values // max(1, len(means) * scores.shape[1]))
    for start in range(0, len(scores), at_a_time):
        rows = slice(start, start + at_a_time)
        mixture, centre, unit = StandardMixture.of(
            means[:, rows],
            noise if noise.shape[-1] == 1 else noise[..., rows],
            None if weights is None else weights[:, rows],
            None if wide is None else wide.of_rows(rows),
        )
        values[rows] = centre + unit * _search(mixture, scores[rows])
    return values


def _search(mixture: StandardMixture, scores: Tensor) -> Tensor:
    """Standardised quantiles, ``[B, K]``; levels that have converged are dropped from the work."""
    answer = torch.empty_like(scores)
    place = torch.arange(scores.numel(), device=scores.device).view(scores.shape)
    lower, upper = mixture.bracket(scores)
    values = cornish_fisher(scores, *mixture.shape()).clamp(lower, upper)
    fourth = mixture.fourth()
    for iteration in range(ITERATIONS):
        signs = torch.where(scores > 0.0, 1.0, -1.0).to(scores)
        goals = 0.5 * torch.erfc(scores.abs() * SQRT_HALF)
        tail, density, slope, curvature = mixture.tails(values, signs)
        missing = (tail - goals) * signs
        step, near = taylor_step(values, tail, missing, density, slope, curvature, fourth, DOUBLE)
        near &= step.isfinite()
        above_rounding = missing.abs() > 2.0 * DOUBLE.rounding * tail
        lower = torch.where(above_rounding & (missing > 0.0), values, lower)
        upper = torch.where(above_rounding & (missing < 0.0), values, upper)
        middle = 0.5 * (lower + upper)
        answer.view(-1)[place] = torch.where(near, values + step, torch.where(above_rounding, middle, values))
        # Far out, neighbouring floating-point numbers are further apart than the tolerance.
        least = DOUBLE.tolerance + 4.0 * DOUBLE.grain * values.abs()
        is_open = above_rounding & ~near & (upper - lower > least)
        if not bool(is_open.any()):
            break
        reached = torch.special.ndtri(tail.clamp_max(1.0 - 1e-7))
        steepness = density * torch.exp(0.5 * reached.square()) * math.sqrt(2.0 * math.pi)
        towards = score_step(-scores.abs(), reached, steepness, -signs * slope / density)
        stepped = values - signs * towards.clamp(-1.0, 1.0)
        bisect = iteration >= FREE_STEPS and iteration % 3 == 0
        values = torch.where((stepped > lower) & (stepped < upper) & (not bisect), stepped, middle)
        if 2 * int(is_open.sum()) <= is_open.numel():
            rows, levels = is_open.nonzero(as_tuple=True)
            mixture, fourth = mixture.of_rows(rows), fourth[rows]
            scores, values, place, lower, upper = (
                part[rows, levels, None] for part in (scores, values, place, lower, upper)
            )
    return answer


@dataclass(frozen=True, slots=True)
class StandardMixture:
    """Standardised mixtures of C components for B rows: mean 0 and standard deviation 1 of each row; float64.

    Attributes:
        means: ``[C, B, 1]``.
        precisions: ``1 / (sqrt(2) width)``, ``[C, B, 1]``; width is a component's standard deviation.
        shares: Weights of sum 1 over C, ``[C, B, 1]``, or one number for all.
        wide: Precision of the wide component, whose mean is 0, ``[B, 1]``; None: there is none.
        of_wide: Weight of the wide component.
    """

    means: Tensor
    precisions: Tensor
    shares: Tensor
    wide: Tensor | None
    of_wide: float

    @classmethod
    def of(
        cls, means: Tensor, noise: Tensor, weights: Tensor | None, wide: WideComponent | None
    ) -> tuple[Self, Tensor, Tensor]:
        """The standardised mixtures, and the mean and the standard deviation of each row, ``[B, 1]``."""
        shares = means.new_full((1, 1), 1.0 / len(means)) if weights is None else weights
        centre = (means * shares).sum(dim=0) if weights is not None else means.mean(dim=0)
        centred = means - centre
        unit = (centred.square().addcmul_(noise, noise) * shares).sum(dim=0).sqrt_()
        standard = cls(
            (centred / unit).unsqueeze(2),
            (unit * SQRT_HALF / noise).expand_as(means).unsqueeze(2),
            shares.unsqueeze(2),
            None if wide is None else (unit * SQRT_HALF / wide.noise).unsqueeze(1),
            0.0 if wide is None else wide.weight,
        )
        return standard, centre.unsqueeze(1), unit.unsqueeze(1)

    def of_rows(self, rows: Tensor) -> StandardMixture:
        """The mixtures of the rows with these indices, which may repeat."""
        shares = self.shares if self.shares.shape[1] == 1 else self.shares[:, rows]
        wide = None if self.wide is None else self.wide[rows]
        return StandardMixture(self.means[:, rows], self.precisions[:, rows], shares, wide, self.of_wide)

    def fourth(self) -> Tensor:
        """``sum_c(weight_c / width_c^4)``, ``[B, 1]``, for the error bound of `quantile_steps.taylor_step`."""
        fourth = 4.0 * self.precisions.pow(4)
        mean = (fourth * self.shares).sum(dim=0)
        return mean if self.wide is None else torch.lerp(mean, 4.0 * self.wide.pow(4), self.of_wide)

    def shape(self) -> tuple[Tensor, Tensor]:
        """Skewness and excess kurtosis without the wide component, clipped to what a guess can use, ``[B, 1]`` each."""
        variances = 0.5 / self.precisions.square()
        inner = self.means.square() + 3.0 * variances
        skewness = (self.means * inner * self.shares).sum(dim=0)
        kurtosis = ((inner.square() - 6.0 * variances.square()) * self.shares).sum(dim=0) - 3.0
        return skewness.clamp_(-1.0, 1.0), kurtosis.clamp_(-1.0, 2.0)

    def bracket(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest and largest quantile of the single components: bounds of the mixture's quantile; ``[B, K]``."""
        quantiles = self.means + scores * SQRT_HALF / self.precisions
        least, most = quantiles.amin(dim=0), quantiles.amax(dim=0)
        if self.wide is None:
            return least, most
        of_wide = scores * SQRT_HALF / self.wide
        return torch.minimum(least, of_wide), torch.maximum(most, of_wide)

    def tails(self, values: Tensor, signs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tail (``1 - F`` for sign 1, ``F`` for sign -1), the density f, f' and f'' at values ``[B, K]``."""
        place = (values - self.means).mul_(self.precisions).clamp_(-DOUBLE.reach, DOUBLE.reach)
        tail = (torch.erfc(place * signs).mul_(self.shares)).sum(dim=0).mul_(0.5)
        bell = place.square().neg_().exp_().mul_(self.precisions).mul_(self.shares)
        density, square = bell.sum(dim=0), self.precisions.square()
        slope = (bell * self.precisions).mul_(place).sum(dim=0)
        curvature = place.square_().mul_(2.0).sub_(1.0).mul_(bell).mul_(square).sum(dim=0)
        scale = 1.0 / math.sqrt(math.pi)
        known = (tail, density.mul_(scale), slope.mul_(-2.0 * scale), curvature.mul_(2.0 * scale))
        if self.wide is None:
            return known
        place = values * self.wide
        bell = torch.exp(-place.square())
        return with_gaussian(known, place, torch.erfc(place * signs), bell, self.wide, self.of_wide)
