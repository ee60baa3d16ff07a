"""Mixtures of Gaussians, one for each of B rows: moments, distribution function, quantiles, scores, the wide component.

Nothing is sampled: percentiles invert the mixture's distribution function, and scores are closed forms.

The search for a quantile starts from a Cornish-Fisher guess. It ends with a Taylor step that is proved to be accurate
enough (`model.distributions.steps.taylor_step`). Until then it takes steps in normal scores, inside a bracket. Regular
bisection shrinks the bracket even where these steps fail. All is in double precision.

The wide component is one wide Gaussian in every mixture, for targets that no draw foresees. After N training rows the
next row is of a new kind with a probability of about ``1 / (N + 1)`` (Laplace's rule of succession). The noise learned
from the other rows is then no guide to its target. So a much wider Gaussian gets this weight ("contaminated", Tukey
1960, "A survey of sampling from contaminated distributions"). A target far out costs a dozen nats instead of hundreds,
and no threshold is exceeded with probability zero. Percentiles that N rows can estimate hardly move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from murho.model.distributions.steps import DOUBLE, SQRT_HALF, cornish_fisher, score_step, taylor_step, with_gaussian
from murho.model.json_validation import NotNegative, Positive, Stored

__all__ = [
    "FURTHEST_SCORE",
    "LOG_SQRT_2PI",
    "Mixture",
    "StandardMixture",
    "WideComponent",
    "WideRule",
    "mixture_quantiles",
    "normal_cdf",
    "score_of_tails",
]


ADDED_VARIANCE = 0.05
"""Variance that the wide component adds, in variances of the noise: aleatoric_std rises by 2.5 %."""


@dataclass(frozen=True, slots=True)
class WideComponent:
    """The wide components of B rows; float64, in the unit of their mixtures.

    Attributes:
        weight: Weight of each in its row's mixture, between 0 and 1.
        means: Means of the wide components, equal to those of the mixtures, ``[B]``.
        spreads: Standard deviations of the mixtures, ``[B]``.
        noise: Standard deviations of the wide components, ``[B]``.
        limited: Whether the wider noise is at its limit and does not follow the mixture, ``[B]``.
    """

    weight: float
    means: Tensor
    spreads: Tensor
    noise: Tensor
    limited: Tensor

    def of_rows(self, rows: slice | Tensor) -> WideComponent:
        """The wide components of selected rows, by a slice, a mask ``[B]`` or indices."""
        return WideComponent(self.weight, self.means[rows], self.spreads[rows], self.noise[rows], self.limited[rows])


@dataclass(frozen=True, slots=True)
class WideRule(Stored):
    """The rule by which a row's wide component follows from its mixture.

    Attributes:
        weight: Weight of the wide component, between 0 and 1.
        widening: The wider noise as a multiple of the mixture's aleatoric noise.
    """

    weight: Annotated[Positive, Field(lt=1.0)]
    widening: NotNegative

    @classmethod
    def after(cls, rows: int) -> Self:
        """The rule after N training rows: weight ``1 / (N + 1)``, and `ADDED_VARIANCE` added to the variance."""
        weight = 1.0 / (rows + 1)
        return cls(weight, math.sqrt(ADDED_VARIANCE / weight))

    def component(self, means: Tensor, spreads: Tensor, noise: Tensor, most: float) -> WideComponent:
        """The wide components of B mixtures; their variance is the mixture's plus that of a wider noise.

        Args:
            means: Means of the mixtures, ``[B]``.
            spreads: Their standard deviations, ``[B]``.
            noise: The aleatoric part of these, ``[B]``.
            most: Upper limit of the wider noise: the standard deviation of the training targets.
        """
        wider = self.widening * noise
        limited = wider > most
        return WideComponent(self.weight, means, spreads, torch.hypot(spreads, wider.clamp_max(most)), limited)


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
        """``sum_c(weight_c / width_c^4)``, ``[B, 1]``, for the error bound of `steps.taylor_step`."""
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

        The search in `model.distributions.mixtures` bounds the error of every value. Time and memory don't
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
