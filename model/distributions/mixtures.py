"""Mixtures of Gaussians, one for each of B rows: moments, distribution function, quantiles, scores.

Nothing is sampled: percentiles invert the mixture's distribution function, and scores are closed forms.

The search for a quantile starts from a Cornish-Fisher guess. It ends with a Taylor step that is proved to be accurate
enough (`model.distributions.quantile_steps.taylor_step`). Until then it takes Newton's steps in normal scores, inside a
bracket. Regular bisection shrinks the bracket even where these steps fail. All is in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from murho.model.distributions.quantile_steps import DOUBLE, SQRT_HALF, cornish_fisher, taylor_step
from murho.model.json_validation import NotNegative, Positive, Stored

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
FURTHEST_SCORE = 37.0
"""Normal score at which ``Phi(-z)`` is about the smallest positive number of double precision."""


def normal_cdf(values: Tensor) -> Tensor:
    """Return the standard normal distribution function, accurate in the lower tail.

    Computed with erfc, which is several times faster than PyTorch's own ``ndtr``.
    """
    return 0.5 * torch.erfc(values * -SQRT_HALF)


def bell(values: Tensor) -> Tensor:
    """Return the standard normal density."""
    return torch.exp(-0.5 * values.square() - LOG_SQRT_2PI)


def score_of_tails(below: Tensor, above: Tensor) -> Tensor:
    """Return normal score from the two tail probabilities, computed from the smaller one; within -37 and 37."""
    scores = torch.where(below < above, torch.special.ndtri(below), -torch.special.ndtri(above))
    return scores.clamp_(-FURTHEST_SCORE, FURTHEST_SCORE)


ADDED_VARIANCE = 0.05
"""Variance that the wide component adds, in variances of the noise: aleatoric_std rises by 2.5 %."""


@dataclass(frozen=True, slots=True)
class WideRule(Stored):
    """The rule of wide components: one wide Gaussian in every mixture, for targets that no draw foresees.

    After N training rows the next row is of a new kind with a probability of about ``1 / (N + 1)`` (Laplace's rule of
    succession). The noise learned from the other rows is then no guide to its target. So a much wider Gaussian gets
    this weight ("contaminated", Tukey 1960, "A survey of sampling from contaminated distributions"). A target far out
    costs a dozen nats instead of hundreds, and no threshold is exceeded with probability zero. Percentiles that N rows
    can estimate hardly move.

    Attributes:
        weight: Weight of the wide component, between 0 and 1.
        widening: The wider noise as a multiple of the mixture's aleatoric noise.
        most: Upper limit of the wider noise, standardised: the standard deviation of the training targets.
    """

    weight: Annotated[Positive, Field(lt=1.0)]
    widening: NotNegative
    most: Positive = 1.0

    @classmethod
    def after(cls, rows: int, most: float = 1.0) -> Self:
        """Return the rule after N training rows: weight ``1 / (N + 1)``, and `ADDED_VARIANCE` added to the variance."""
        weight = 1.0 / (rows + 1)
        return cls(weight, math.sqrt(ADDED_VARIANCE / weight), most)

    def noise(self, spreads: Tensor, noise: Tensor, most: float) -> Tensor:
        """Return standard deviations of the wide components of B mixtures: their variances, and that of a wider noise.

        Args:
            spreads: Standard deviations of the mixtures, ``[B]``.
            noise: The aleatoric part of these, ``[B]``.
            most: `most` in the unit of the others.
        """
        return torch.hypot(spreads, (self.widening * noise).clamp_max(most))


TILE_VALUES, DEVICE_TILE_VALUES = 2**17, 2**22
"""Rows times components times levels of a search, on a CPU (1 MiB in each of a few buffers) and on a GPU."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """C Gaussian components for each of B rows; float64, all in the same unit.

    Attributes:
        means: Means of the components, ``[C, B]``.
        noise: Their standard deviations, broadcastable to ``[C, B]``, positive.
        weights: Their weights, broadcastable to ``[C, B]``, of sum 1 over C; None: equal weights.
    """

    means: Tensor
    noise: Tensor
    weights: Tensor | None = None

    @property
    def shares(self) -> Tensor:
        """The weights, broadcastable to ``[C, B]``."""
        return self.means.new_full((1, 1), 1.0 / len(self.means)) if self.weights is None else self.weights

    def average(self, values: Tensor) -> Tensor:
        """Mean over the C components of values ``[..., C, B]``; ``[..., B]``."""
        return (values * self.shares).sum(dim=-2)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each row, ``[B]`` each."""
        mean = self.average(self.means)
        squares = (self.means - mean.unsqueeze(-2)).square_().addcmul_(self.noise, self.noise)
        return mean, self.average(squares).sqrt()

    def with_component(self, means: Tensor, noise: Tensor, weight: float) -> Mixture:
        """One more component, with means and noise ``[B]``; the weights of the others are multiplied by 1 - weight."""
        parts = ((self.noise, noise), (self.shares * (1.0 - weight), means.new_full(means.shape, weight)))
        rest = (torch.cat((part.expand_as(self.means), new.unsqueeze(0))) for part, new in parts)
        return Mixture(torch.cat((self.means, means.unsqueeze(0))), *rest)

    def normal_score(self, values: Tensor) -> Tensor:
        """Return the normal score ``z = Phi^-1(F(y))`` of values under their row's mixture.

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
        lower, upper = self.average(normal_cdf(standardised)), self.average(normal_cdf(-standardised))
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
        components = self.shares.log() - 0.5 * standardised.square() - torch.log(self.noise) - LOG_SQRT_2PI
        return torch.logsumexp(components, dim=0)

    def of_rows(self, rows: slice | Tensor) -> Mixture:
        """Return the mixtures of selected rows, by a slice, a mask ``[B]`` or indices, which may repeat."""
        noise, shares = (part if part.shape[-1] == 1 else part[..., rows] for part in (self.noise, self.shares))
        return Mixture(self.means[:, rows], noise, shares)

    def quantiles(self, scores: Tensor) -> Tensor:
        """Invert the distribution function: ``y`` with ``F(y) = Phi(score)``.

        The search bounds the error of every value. Time and memory don't depend on the mixture, except where the
        distribution function is a staircase.

        Args:
            scores: Normal scores of the levels: ``[K]`` for all rows, or ``[B, K]`` for each row.

        Returns:
            ``[B, K]``, nondecreasing in the score, exact to 2e-7 of the mixture's standard deviation; to the limit of
            double precision where the distribution function is too flat for that.
        """
        rows = self.means.shape[1]
        scores = scores.to(self.means).clamp(-FURTHEST_SCORE, FURTHEST_SCORE).expand(rows, -1)
        values = torch.empty_like(scores)
        if not scores.numel():
            return values
        most = TILE_VALUES if self.means.device.type == "cpu" else DEVICE_TILE_VALUES
        at_a_time = max(1, most // (len(self.means) * scores.shape[1]))
        for start in range(0, rows, at_a_time):
            part = slice(start, start + at_a_time)
            values[part] = _search(self.of_rows(part), scores[part])
        # Rounding must not swap two levels that have the same value.
        order = scores.argsort(dim=1)
        return values.scatter(1, order, values.gather(1, order).cummax(dim=1).values)

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score, in closed form (Grimit et al. 2006, equation 3).

        ``E|Y - y| - 1/2 E|Y - Y'|`` with both expectations over Gaussian components. The second one is quadratic in
        C and so computed in single precision, in units of the row's spread: to about 1e-6 of it.

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
        shares = self.shares.float().expand(count, -1)
        between = torch.zeros_like(values)
        for shift in range(count // 2 + 1):
            # The pairs (i, i + shift mod C) and their mirror images; at shifts 0 and C/2 mirror images are the same.
            others, wide, weights = (part.roll(shift, dims=0) for part in (centred, variance, shares))
            apart = _absolute_moment(centred - others, (variance + wide).sqrt_()).mul_(shares * weights)
            between += apart.sum(dim=0).double() * (1.0 if shift in (0, count / 2) else 2.0)
        return to_value - 0.5 * spread * between


def _absolute_moment(means: Tensor, sigma: Tensor) -> Tensor:
    """``E|X|`` for ``X ~ N(mean, sigma^2)``."""
    standardised = means / sigma
    return 2.0 * sigma * bell(standardised) + means * torch.erf(standardised * SQRT_HALF)


ITERATIONS = 200
FREE_STEPS = 4
"""Steps before bisection sets in; after them every third step is a bisection."""


def _search(mixture: Mixture, scores: Tensor) -> Tensor:
    """Quantiles of B rows at normal scores ``[B, K]``; those that have converged are dropped from the work.

    All is in units of each row's mean and standard deviation. Every row and level is a problem of its own, of ``B K``.
    """
    centre, unit = mixture.moments()
    means, widths = (mixture.means - centre) / unit, (mixture.noise / unit).expand_as(mixture.means)
    shares, variances = mixture.shares, widths.square()
    inner = means.square() + 3.0 * variances
    skewness = (means * inner * shares).sum(dim=0).clamp_(-1.0, 1.0)
    kurtosis = ((inner.square() - 6.0 * variances.square()) * shares).sum(dim=0).sub_(3.0).clamp_(-1.0, 2.0)
    fourth = (shares / variances.square()).sum(dim=0)
    precisions, shares = SQRT_HALF / widths, shares.expand_as(means)
    means, precisions, shares, skewness, kurtosis, fourth = (
        part.repeat_interleave(scores.shape[1], dim=-1)
        for part in (means, precisions, shares, skewness, kurtosis, fourth)
    )
    asked, scores = scores, scores.flatten()
    ends = means + scores * SQRT_HALF / precisions
    lower, upper = ends.amin(dim=0), ends.amax(dim=0)  # the quantile lies between those of single components
    values = cornish_fisher(scores, skewness, kurtosis).clamp(lower, upper)
    answer, place = torch.empty_like(scores), torch.arange(len(scores), device=scores.device)
    for iteration in range(ITERATIONS):
        signs = torch.where(scores > 0.0, 1.0, -1.0).to(scores)
        goals = normal_cdf(-scores.abs())
        tail, density, slope, curvature = _tails(means, precisions, shares, values, signs)
        missing = (tail - goals) * signs
        step, near = taylor_step(values, tail, missing, density, slope, curvature, fourth, DOUBLE)
        near &= step.isfinite()
        above_rounding = missing.abs() > 2.0 * DOUBLE.rounding * tail
        lower = torch.where(above_rounding & (missing > 0.0), values, lower)
        upper = torch.where(above_rounding & (missing < 0.0), values, upper)
        middle = 0.5 * (lower + upper)
        answer[place] = torch.where(near, values + step, torch.where(above_rounding, middle, values))
        # Far out, neighbouring floating-point numbers are further apart than the tolerance.
        least = DOUBLE.tolerance + 4.0 * DOUBLE.grain * values.abs()
        is_open = above_rounding & ~near & (upper - lower > least)
        if not bool(is_open.any()):
            break
        # Newton's step in normal scores, which are linear in y for a Gaussian.
        reached = torch.special.ndtri(tail.clamp_max(1.0 - 1e-7))
        towards = (reached + scores.abs()) / density * bell(reached)
        stepped = values + signs * towards.clamp(-1.0, 1.0)
        bisect = iteration >= FREE_STEPS and iteration % 3 == 0
        values = torch.where((stepped > lower) & (stepped < upper) & (not bisect), stepped, middle)
        if 2 * int(is_open.sum()) <= len(is_open):
            scores, values, place, lower, upper, fourth, means, precisions, shares = (
                part[..., is_open] for part in (scores, values, place, lower, upper, fourth, means, precisions, shares)
            )
    return centre.unsqueeze(1) + unit.unsqueeze(1) * answer.view_as(asked)


def _tails(
    means: Tensor, precisions: Tensor, shares: Tensor, values: Tensor, signs: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the tail (``1 - F`` for sign 1, ``F`` for sign -1), the density f, f' and f'' at values, ``[n]`` each.

    Args:
        means: ``[C, n]``.
        precisions: ``1 / (sqrt(2) width)``, ``[C, n]``; width is a component's standard deviation.
        shares: Weights of sum 1 over C, ``[C, n]``.
        values: ``[n]``.
        signs: ``[n]``.
    """
    place = (values - means).mul_(precisions).clamp_(-DOUBLE.reach, DOUBLE.reach)
    tail = torch.erfc(place * signs).mul_(shares).sum(dim=0).mul_(0.5)
    bells = place.square().neg_().exp_().mul_(precisions).mul_(shares)
    density = bells.sum(dim=0)
    slope = (bells * precisions).mul_(place).sum(dim=0)
    curvature = place.square_().mul_(2.0).sub_(1.0).mul_(bells).mul_(precisions.square()).sum(dim=0)
    scale = 1.0 / math.sqrt(math.pi)
    return tail, density.mul_(scale), slope.mul_(-2.0 * scale), curvature.mul_(2.0 * scale)
