"""The predictive distribution of a number: an equal-weight mixture over draws, in the target's unit, with its limits.

Given a draw, the transformed target of an observation is Gaussian or a mixture of K Gaussians. The inverse transform
leads to the target's own unit.

A target with limits ``a <= y <= b`` is ``clip(y*, a, b)`` of a latent ``y*``, which the network describes. So the mass
of ``y*`` beyond a limit lies on the limit (censored regression: Tobin 1958, "Estimation of relationships for limited
dependent variables"). Percentiles are clipped, function values are ``E[clip(y*)]`` under each draw, and ``P(y = b)``
is the probability of exceeding a threshold just below b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from murho.model.distributions.mixtures import Mixture, normal_cdf
from murho.model.distributions.transforms import Identity, Limits

if TYPE_CHECKING:
    from murho.model.distributions.mixtures import WideRule
    from murho.model.distributions.transforms import Transform

__all__ = [
    "LimitedPredictive",
    "Predictive",
    "function_exceedance",
    "function_quantiles",
    "split",
]

PANELS = 64
"""Panels of about equal probability in the integral of the CRPS where it has no closed form."""
POOLED = 5
"""Quantiles of each component from which the ends of the panels are chosen."""
VALUES_AT_A_TIME = 2**20
"""Values of the components' distribution functions that are computed together: 4 MiB, and a few temporaries."""
WIDE_KNOTS = (-7.0, -3.5, -2.0, -1.0, 1.0, 2.0, 3.5, 7.0)
"""Further ends of panels for a wide component, in its standard deviations."""
ABSCISSAE = ((-(0.6**0.5), 5.0 / 9.0), (0.0, 8.0 / 9.0), (0.6**0.5, 5.0 / 9.0))
"""Nodes and weights of Gauss-Legendre quadrature on [-1, 1], exact to degree 5."""


def split(means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and its two variance parts by the law of total variance: ``Var[y] = Var_draws[mean] + E_draws[noise^2]``.

    Args:
        means: Function values, ``[S, B]``.
        noise: Standard deviation of an observation given each draw, broadcastable to ``[S, B]``.

    Returns:
        ``mean``, ``epistemic_std`` and ``aleatoric_std``, each ``[B]``.
    """
    mean = means.mean(dim=0)
    epistemic = (means - mean).square_().mean(dim=0).sqrt_()
    # Noise that all draws share needs no average; noise that all rows share is averaged once.
    shared = noise.dim() > 1 and len(noise) == 1
    aleatoric = noise[0] if shared else noise.square().mean(dim=0).sqrt_()
    return mean, epistemic, aleatoric.expand_as(mean)


@dataclass(frozen=True, slots=True)
class Predictive:
    """The predictive distribution of the target of B rows; float64.

    Attributes:
        means: Function values, ``[S, B]``, in the target's unit.
        noise: Standard deviation of an observation given each draw, without the wide component, broadcastable to
            ``[S, B]``, in the target's unit.
        mixture: The distribution of the transformed target: C = S * K components, and perhaps a wide one.
        transform: From the target to the transformed target.
        moments: Mean, epistemic_std and aleatoric_std with the wide component, ``[B]`` each; None: there is none.
    """

    means: Tensor
    noise: Tensor
    mixture: Mixture
    transform: Transform
    moments: tuple[Tensor, Tensor, Tensor] | None = None

    @classmethod
    def of(
        cls, means: Tensor, noise: Tensor, weights: Tensor | None = None, transform: Transform | None = None
    ) -> Predictive:
        """Build the predictive from the observation model's components under each draw.

        Args:
            means: Of the transformed target, ``[S, B, K]``, float64.
            noise: Its standard deviations, broadcastable to ``[S, B, K]``.
            weights: ``[S, B, K]`` of sum 1 over K; None where K is 1.
            transform: None: the components are in the target's unit already.
        """
        transform = transform or Identity()
        # Rows last, as `model.predictive.torch_engine` lays them out: sums over components then run along long rows.
        means, noise = means.transpose(1, 2), noise.transpose(1, 2)
        values, deviations = transform.moments(means, noise)
        if weights is None:
            mixture = Mixture(means[:, 0], noise[:, 0])
            return cls(values[:, 0], deviations[:, 0], mixture, transform)
        weights = weights.transpose(1, 2)
        mean = (weights * values).sum(dim=1)
        squares = (values - mean.unsqueeze(1)).square_().addcmul_(deviations, deviations)
        variance = squares.mul_(weights).sum(dim=1)
        means, noise, weights = (part.expand_as(means).flatten(0, 1) for part in (means, noise, weights / len(means)))
        return cls(mean, variance.sqrt_(), Mixture(means, noise, weights), transform)

    def of_rows(self, rows: Tensor) -> Predictive:
        """The predictive of selected rows, by a mask ``[B]`` or indices."""
        noise = self.noise.expand_as(self.means)[:, rows]
        moments = None
        if self.moments is not None:
            mean, epistemic, aleatoric = self.moments
            moments = mean[rows], epistemic[rows], aleatoric[rows]
        return Predictive(self.means[:, rows], noise, self.mixture.of_rows(rows), self.transform, moments)

    def with_wide(self, rule: WideRule, most: float) -> Predictive:
        """Add a wide component to each row's mixture.

        It follows from all draws together and so belongs to none of them: function values stay as they are, as does
        their spread. With a transform it moves the mean a little. The variance that it adds is aleatoric.

        Args:
            rule: How wide components follow from mixtures.
            most: Upper limit of the wider noise, see `model.distributions.mixtures.WideRule.component`.
        """
        mean, epistemic, aleatoric = split(self.means, self.noise)
        std, share = torch.hypot(epistemic, aleatoric), rule.weight
        if isinstance(self.transform, Identity):
            wide = rule.component(mean, std, aleatoric, most)
            added = share * (wide.noise.square() - std.square())
        else:
            location, spread = self.mixture.moments()
            wide = rule.component(location, spread, spread * (aleatoric / std), most)
            centre, deviation = self.transform.moments(location, wide.noise)
            apart = centre - mean
            added = share * (deviation.square() - std.square() + (1.0 - share) * apart.square())
            mean = torch.add(mean, apart, alpha=share)
        aleatoric = aleatoric.square().add_(added).clamp_min_(0.0).sqrt_()
        mixture = replace(self.mixture, wide=wide)
        return Predictive(self.means, self.noise, mixture, self.transform, (mean, epistemic, aleatoric))

    def split(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, epistemic_std and aleatoric_std, each ``[B]``, with the wide component; see `predictive.split`."""
        return split(self.means, self.noise) if self.moments is None else self.moments

    def normal_score(self, values: Tensor) -> Tensor:
        """Normal scores of target values ``[..., B]``, by `model.distributions.mixtures.Mixture.normal_score`."""
        return self.mixture.normal_score(self.transform.forward(values))

    def quantiles(self, scores: Tensor) -> Tensor:
        """``y`` with ``F(y) = Phi(score)``, ``[B, K]`` for normal scores ``[K]``."""
        return self.transform.inverse(self.mixture.quantiles(scores))

    def reported(self, quantiles: Tensor) -> Tensor:
        """Percentiles as answers give them, of quantiles of any shape: the same, but for counts."""
        return quantiles

    def log_density(self, values: Tensor) -> Tensor:
        """Log density at one target value per row, ``[B]``; nats, of a density per unit of the target."""
        density = self.mixture.log_density(self.transform.forward(values))
        return density + self.transform.log_slope(values)

    def tails(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper tail probabilities of every row at target values ``[T]``, ``[B, T]`` each."""
        values = thresholds.to(self.means).unsqueeze(-1).expand(-1, self.means.shape[1])
        below, above = self.mixture.tails(self.transform.forward(values))
        return below.T, above.T

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score at one target value per row, ``[B]``; lower is better.

        In closed form for Gaussians in the target's own unit. Otherwise the integral of
        ``(F(y) - [y >= value])^2`` (Matheson & Winkler 1976) over panels of about equal probability: to a relative
        error of about 1e-4.
        """
        if isinstance(self.transform, Identity) and len(self.mixture.means) == len(self.means):
            return self.mixture.crps(values)
        return self.integrated_crps(values)

    def integrated_crps(self, values: Tensor, lower: float = -math.inf, upper: float = math.inf) -> Tensor:
        """`crps` by quadrature; the integral runs from ``lower`` to ``upper``, in units of the transformed target."""
        observed = self.transform.forward(values).unsqueeze(-1)
        knots = torch.cat((self._knots(), observed), dim=1).clamp(lower, upper).sort(dim=1).values  # [B, knots]
        half, middle = 0.5 * knots.diff(dim=1), 0.5 * (knots[:, 1:] + knots[:, :-1])
        total = torch.zeros_like(values)
        for node, weight in ABSCISSAE:
            points = middle + node * half  # [B, panels]
            distance = self._cdf(points) - (points >= observed).to(points)
            slope = torch.exp(-self.transform.log_slope(self.transform.inverse(points)))
            total += weight * (distance.square() * slope * half).sum(dim=1)
        return total

    def _knots(self) -> Tensor:
        """Ends of panels of about equal probability, from the pooled quantiles of all components, ``[B, knots]``."""
        means, noise = self.mixture.means, self.mixture.noise.expand_as(self.mixture.means)
        inner = torch.special.ndtri((torch.arange(POOLED, dtype=means.dtype, device=means.device) + 0.5) / POOLED)
        pooled = means.unsqueeze(-1) + noise.unsqueeze(-1) * inner  # [C, B, POOLED]
        pooled = pooled.transpose(0, 1).flatten(start_dim=1)
        if self.mixture.weights is None:
            pooled = pooled.sort(dim=1).values
            shares = torch.linspace(0, pooled.shape[1] - 1, PANELS, device=means.device).round().long()
            inside = pooled[:, shares]
        else:
            pooled, order = pooled.sort(dim=1)
            weights = self.mixture.weights.T.repeat_interleave(POOLED, dim=1).gather(1, order).cumsum(dim=1)
            levels = torch.linspace(0.0, 1.0, PANELS, dtype=means.dtype, device=means.device)
            ends = weights[:, -1:] * levels
            inside = pooled.gather(1, torch.searchsorted(weights, ends).clamp_max(pooled.shape[1] - 1))
        tails = [(means + side * noise * reach).T for side in (-1.0, 1.0) for reach in (3.5, 7.0)]
        outer = [tail.amin(dim=1) for tail in tails[:2]] + [tail.amax(dim=1) for tail in tails[2:]]
        wide = self.mixture.wide
        if wide is not None:
            outer += [wide.means + reach * wide.noise for reach in WIDE_KNOTS]
        return torch.cat((inside, torch.stack(outer, dim=1)), dim=1)

    def _cdf(self, points: Tensor) -> Tensor:
        """The distribution function at ``[B, points]``, in single precision, in units of each row's spread."""
        mean, spread = self.mixture.moments()
        centred, widths = (
            ((self.mixture.means - mean) / spread).float(),
            (self.mixture.noise / spread).float(),
        )
        weights = None if self.mixture.weights is None else self.mixture.weights.float()
        scaled = ((points - mean.unsqueeze(-1)) / spread.unsqueeze(-1)).float().T  # [points, B]
        total = []
        parts = math.ceil(len(scaled) * centred.numel() / VALUES_AT_A_TIME)
        for part in scaled.tensor_split(min(max(1, parts), len(scaled))):
            share = normal_cdf((part.unsqueeze(1) - centred) / widths)
            total.append(share.mean(dim=1) if weights is None else (share * weights).sum(dim=1))
        cdf = torch.cat(total).T.double()
        wide = self.mixture.wide
        if wide is None:
            return cdf
        return torch.lerp(cdf, normal_cdf((points - wide.means[:, None]) / wide.noise[:, None]), wide.weight)


def function_quantiles(means: Tensor, levels: Tensor) -> Tensor:
    """Percentiles of the function values: linear interpolation between their order statistics.

    Args:
        means: ``[S, B]``.
        levels: Probabilities, ``[K]``.

    Returns:
        ``[B, K]``.
    """
    last = len(means) - 1
    # NumPy's sort takes a twentieth of the time of PyTorch's on a CPU.
    ordered = means.T.sort(dim=1).values if means.is_cuda else torch.from_numpy(np.sort(means.T.numpy(), axis=1))
    position = levels.to(means) * last
    below = position.floor().long().clamp(0, last)
    above = (below + 1).clamp_max(last)
    return torch.lerp(ordered[:, below], ordered[:, above], position - below)


def function_exceedance(means: Tensor, thresholds: Tensor) -> Tensor:
    """The share of draws whose function value exceeds each threshold, ``[B, T]``."""
    return (means.unsqueeze(-1) > thresholds.to(means)).to(means.dtype).mean(dim=0)


LEAST_MASS = 1e-300
"""Floor of the probability of a limit in the log likelihood."""


@dataclass(frozen=True, slots=True)
class LimitedPredictive(Predictive):
    """The predictive distribution of a target with limits.

    ``means`` and ``noise`` are those of the clipped observation under each draw, ``moments`` those of the whole clipped
    mixture. ``mixture`` describes the latent target, transformed.

    Attributes:
        limits: The limits.
    """

    limits: Limits = field(default_factory=Limits)

    @classmethod
    def clipped(cls, latent: Predictive, limits: Limits) -> Self:
        """Clip a predictive distribution."""
        mixture, transform, draws = latent.mixture, latent.transform, len(latent.means)
        ends = limits.minimum, limits.maximum
        values, deviations = transform.clipped_moments(mixture.means, mixture.noise, *ends)
        if mixture.weights is None:
            means, noise = values, deviations
        else:
            shares = (mixture.weights * draws).unflatten(0, (draws, -1))
            values, deviations = (part.unflatten(0, (draws, -1)) for part in (values, deviations))
            means = (shares * values).sum(dim=1)
            noise = (shares * ((values - means.unsqueeze(1)).square() + deviations.square())).sum(dim=1).sqrt()
        mean = means.mean(dim=0)
        epistemic = (means - mean).square().mean(dim=0).sqrt()
        variance = noise.square().mean(dim=0)
        wide = mixture.wide
        if wide is not None:
            centre, spread = transform.clipped_moments(wide.means, wide.noise, *ends)
            # The wide component moves the means of all draws alike; the variance that it adds is aleatoric.
            apart, share = centre - mean, wide.weight
            whole = epistemic.square() + variance
            variance = variance + share * (spread.square() - whole + (1.0 - share) * apart.square())
            means, mean = means + share * apart, mean + share * apart
        moments = (limits.clip(mean), epistemic, variance.clamp_min(0.0).sqrt())
        return cls(limits.clip(means), noise, mixture, transform, moments, limits)

    def of_rows(self, rows: Tensor) -> Predictive:
        """See `Predictive.of_rows`."""
        part = Predictive.of_rows(self, rows)
        return LimitedPredictive(part.means, part.noise, part.mixture, part.transform, part.moments, self.limits)

    def quantiles(self, scores: Tensor) -> Tensor:
        """See `Predictive.quantiles`: those of the latent target, clipped."""
        return self.limits.clip(Predictive.quantiles(self, scores))

    def normal_score(self, values: Tensor) -> Tensor:
        """See `Predictive.normal_score`; at a limit, the score from which on a central band contains the limit.

        A band's upper end is at the maximum if its score is at least that of the latent target there. Its lower end
        never lies above the maximum. So a negative score at the maximum becomes 0: every band contains it.
        """
        scores = Predictive.normal_score(self, self.limits.clip(values))
        scores = torch.where(values >= self.limits.maximum, scores.clamp_min(0.0), scores)
        return torch.where(values <= self.limits.minimum, scores.clamp_max(0.0), scores)

    def log_density(self, values: Tensor) -> Tensor:
        """Log density between the limits; at a limit the logarithm of its probability (Tobin 1958).

        Values beyond a limit count as values at the limit.
        """
        inside = self.limits.clip(values)
        below, above = self.mixture.tails(self.transform.forward(inside))
        density = Predictive.log_density(self, inside)
        density = torch.where(values >= self.limits.maximum, above.clamp_min(LEAST_MASS).log(), density)
        return torch.where(values <= self.limits.minimum, below.clamp_min(LEAST_MASS).log(), density)

    def tails(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictive.tails`: ``P(y <= t)`` and ``P(y > t)``; the mass of a limit lies on it."""
        below, above = Predictive.tails(self, self.limits.clip(thresholds))
        high, low = ((thresholds >= self.limits.maximum), (thresholds < self.limits.minimum))
        above = torch.where(high, 0.0, torch.where(low, 1.0, above))
        return torch.where(high, 1.0, torch.where(low, 0.0, below)), above

    def crps(self, values: Tensor) -> Tensor:
        """See `Predictive.crps`: between the limits the integral of the latent distribution function.

        A value beyond a limit adds its distance from the limit.
        """
        inside = self.limits.clip(values)
        ends = values.new_tensor([self.limits.minimum, self.limits.maximum])
        lower, upper = torch.where(ends.isinf(), ends, self.transform.forward(ends)).tolist()
        return self.integrated_crps(inside, lower, upper) + (values - inside).abs()
