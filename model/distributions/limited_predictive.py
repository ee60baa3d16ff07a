"""Predictive distributions of a target with limits.

A target with limits ``a <= y <= b`` is ``clip(y*, a, b)`` of a latent ``y*``, which the network describes. So the mass
of ``y*`` beyond a limit lies on the limit (censored regression: Tobin 1958, "Estimation of relationships for limited
dependent variables"). Percentiles are clipped, function values are ``E[clip(y*)]`` under each draw, and ``P(y = b)``
is the probability of exceeding a threshold just below b.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import torch

from murho.model.distributions.limits import Limits
from murho.model.distributions.predictive import Predictive

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LimitedPredictive"]

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
