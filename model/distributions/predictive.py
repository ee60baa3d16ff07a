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

import numpy as np
import torch
from torch import Tensor

from murho.model.distributions.mixtures import Mixture, WideRule, normal_cdf
from murho.model.distributions.target_transforms import Identity, Limits, Transform

PANELS = 32
"""Panels of about equal probability in the integral of the CRPS where it has no closed form."""
POOLED = 5
"""Quantiles of each component from which the ends of the panels are chosen."""
VALUES_AT_A_TIME = 2**20
"""Values of the components' distribution functions that are computed together: 4 MiB, and a few temporaries."""
OUTER = (-7.0, -3.5, -2.0, -1.0, 1.0, 2.0, 3.5, 7.0)
"""Further ends of panels for the outermost components, in their standard deviations."""
ABSCISSAE = ((-(0.6**0.5), 5.0 / 9.0), (0.0, 8.0 / 9.0), (0.6**0.5, 5.0 / 9.0))
"""Nodes and weights of Gauss-Legendre quadrature on [-1, 1], exact to degree 5."""
MOST_PAIRED = 400
"""Components up to which the CRPS in closed form, which compares all pairs, takes less time than the integral."""
HERMITE_NODES = 24
"""Nodes of the quadrature of a third moment."""
LEAST_MASS = 1e-300
"""Floor of the probability of a limit in the log likelihood."""


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
    return mean, epistemic, noise.square().mean(dim=0).sqrt_().expand_as(mean)


@dataclass(frozen=True, slots=True)
class Predictive:
    """The predictive distribution of the target of B rows; float64.

    Attributes:
        means: Function values, ``[S, B]``, in the target's unit.
        noise: Standard deviation of an observation given each draw, without the wide component, broadcastable to
            ``[S, B]``, in the target's unit.
        moments: Mean, epistemic_std and aleatoric_std, ``[B]`` each, with the wide component.
        mixture: The distribution of the transformed target, beyond its limits too: C = S * K components, and perhaps a
            wide one.
        transform: From the target to the transformed target.
        limits: Limits of the target.
        components: K.
    """

    means: Tensor
    noise: Tensor
    moments: tuple[Tensor, Tensor, Tensor]
    mixture: Mixture
    transform: Transform = field(default_factory=Identity)
    limits: Limits = field(default_factory=Limits)
    components: int = 1

    @classmethod
    def of(
        cls,
        means: Tensor,
        noise: Tensor,
        weights: Tensor | None = None,
        transform: Transform | None = None,
        limits: Limits | None = None,
    ) -> Predictive:
        """Build the predictive from the observation model's components under each draw.

        Args:
            means: Of the transformed target, ``[S, B, K]``, float64.
            noise: Its standard deviations, broadcastable to ``[S, B, K]``.
            weights: ``[S, B, K]`` of sum 1 over K; None where K is 1.
            transform: None: the components are in the target's unit already.
            limits: Limits of the target; None: there are none.
        """
        transform, limits = transform or Identity(), limits or Limits()
        # Rows last, as `model.predictive.forward` lays them out: sums over components then run along long rows.
        means, noise = means.transpose(1, 2), noise.transpose(1, 2)
        values, deviations = transform.moments(means, noise, limits)
        components = means.shape[1]
        if weights is None:
            mixture, values, deviations = Mixture(means[:, 0], noise[:, 0]), values[:, 0], deviations[:, 0]
        else:
            parts = Mixture(values, deviations, weights.transpose(1, 2))
            flat = (part.expand_as(means).flatten(0, 1) for part in (means, noise, parts.shares / len(means)))
            mixture, (values, deviations) = Mixture(*flat), parts.moments()
        return cls(values, deviations, split(values, deviations), mixture, transform, limits, components)

    def with_wide(self, rule: WideRule, most: float) -> Predictive:
        """Add a wide component to each row's mixture.

        It follows from all draws together and so belongs to none of them: function values stay as they are, as does
        their spread. With a transform or limits it moves the mean a little. The variance that it adds is aleatoric.

        Args:
            rule: How wide components follow from mixtures.
            most: Upper limit of the wider noise, see `model.distributions.mixtures.WideRule.noise`.
        """
        (mean, epistemic, aleatoric), share = self.moments, rule.weight
        std = torch.hypot(epistemic, aleatoric)
        location, spread = self.mixture.moments()
        wide = rule.noise(spread, spread * (aleatoric / std.clamp_min(torch.finfo(std.dtype).tiny)), most)
        centre, deviation = self.transform.moments(location, wide, self.limits)
        apart = centre - mean
        added = share * (deviation.square() - std.square() + (1.0 - share) * apart.square())
        mean = self.limits.clip(torch.add(mean, apart, alpha=share))
        aleatoric = aleatoric.square().add_(added).clamp_min_(0.0).sqrt_()
        mixture = self.mixture.with_component(location, wide, share)
        return replace(self, moments=(mean, epistemic, aleatoric), mixture=mixture)

    def normal_score(self, values: Tensor) -> Tensor:
        """Return normal scores of target values ``[..., B]``, by `model.distributions.mixtures.Mixture.normal_score`.

        At a limit it is the score from which on a central band contains the limit. A band's upper end is at the maximum
        if its score is at least that of the latent target there. Its lower end never lies above the maximum. So a
        negative score at the maximum becomes 0: every band contains it.
        """
        scores = self.mixture.normal_score(self.transform.forward(self.limits.clip(values)))
        scores = torch.where(values >= self.limits.maximum, scores.clamp_min(0.0), scores)
        return torch.where(values <= self.limits.minimum, scores.clamp_max(0.0), scores)

    def quantiles(self, scores: Tensor) -> Tensor:
        """``y`` with ``F(y) = Phi(score)``, ``[B, K]`` for normal scores ``[K]``, clipped to the limits."""
        return self.limits.clip(self.transform.inverse(self.mixture.quantiles(scores)))

    def report_quantiles(self, quantiles: Tensor) -> Tensor:
        """Percentiles as answers give them, of quantiles of any shape: the same, but for counts."""
        return quantiles

    def log_density(self, values: Tensor) -> Tensor:
        """Log density at one target value per row, ``[B]``; nats, of a density per unit of the target.

        At a limit, and beyond, it is the logarithm of the limit's probability (Tobin 1958).
        """
        inside = self.limits.clip(values)
        place = self.transform.forward(inside)
        density = self.mixture.log_density(place) + self.transform.log_slope(inside)
        if self.limits.are_none:
            return density
        below, above = self.mixture.tails(place)
        density = torch.where(values >= self.limits.maximum, above.clamp_min(LEAST_MASS).log(), density)
        return torch.where(values <= self.limits.minimum, below.clamp_min(LEAST_MASS).log(), density)

    def third_moment(self) -> Tensor:
        """Mean over draws of the third central moment of the noise, ``[B]``, without the wide component.

        A mixture's follows from its components. Those of a logarithm have the skewness of a lognormal; of a target
        with limits their moments are taken by Gauss-Hermite quadrature.
        """
        if self.components == 1 and isinstance(self.transform, Identity) and self.limits.are_none:
            return torch.zeros_like(self.means[0])
        count = self.components * len(self.means)
        means, noise, shares = (
            part.expand_as(self.mixture.means)[:count]
            for part in (self.mixture.means, self.mixture.noise, self.mixture.shares)
        )
        about, shares = self.means.repeat_interleave(self.components, dim=0), shares / shares.sum(dim=0)
        if self.limits.are_none:
            values, deviations = self.transform.moments(means, noise)
            apart, square = values - about, deviations.square()
            third = apart * (apart.square() + 3.0 * square) + self.transform.third_moment(values, square)
            return (shares * third).sum(dim=0)
        total = torch.zeros_like(self.means[0])
        for node, weight in zip(*np.polynomial.hermite_e.hermegauss(HERMITE_NODES), strict=True):
            values = self.limits.clip(self.transform.inverse(means + float(node) * noise))
            total += float(weight) * (shares * (values - about) ** 3).sum(dim=0)
        return total / math.sqrt(2.0 * math.pi)

    def tails(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """``P(y <= t)`` and ``P(y > t)`` of every row at target values ``[T]``, ``[B, T]`` each.

        The mass of a limit lies on it.
        """
        values = self.limits.clip(thresholds.to(self.means)).unsqueeze(-1).expand(-1, self.means.shape[1])
        below, above = (part.T for part in self.mixture.tails(self.transform.forward(values)))
        over, under = thresholds >= self.limits.maximum, thresholds < self.limits.minimum
        above = torch.where(over, 0.0, torch.where(under, 1.0, above))
        return torch.where(over, 1.0, torch.where(under, 0.0, below)), above

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score at one target value per row, ``[B]``; lower is better.

        In closed form for Gaussians in the target's own unit, unless these are many. Otherwise the integral of
        ``(F(y) - [y >= value])^2`` (Matheson & Winkler 1976) over panels of about equal probability: to a relative
        error of about 1e-4. A value beyond a limit adds its distance from the limit.
        """
        if isinstance(self.transform, Identity) and self.limits.are_none and len(self.mixture.means) <= MOST_PAIRED:
            return self.mixture.crps(values)
        inside = self.limits.clip(values)
        lower, upper = self.transform.ends(self.limits)
        observed = self.transform.forward(inside).unsqueeze(-1)
        knots = torch.cat((self._knots(), observed), dim=1).clamp(lower, upper).sort(dim=1).values  # [B, knots]
        half, middle = 0.5 * knots.diff(dim=1), 0.5 * (knots[:, 1:] + knots[:, :-1])
        total = (values - inside).abs()
        for node, weight in ABSCISSAE:
            points = middle + node * half  # [B, panels]
            distance = self._cdf(points) - (points >= observed).to(points)
            slope = torch.exp(-self.transform.log_slope(self.transform.inverse(points)))
            total += weight * (distance.square() * slope * half).sum(dim=1)
        return total

    def _knots(self) -> Tensor:
        """Return ends of panels of about equal probability, from pooled quantiles of all components, ``[B, knots]``."""
        means = self.mixture.means
        noise, shares = (part.expand_as(means) for part in (self.mixture.noise, self.mixture.shares))
        levels = (torch.arange(POOLED, dtype=means.dtype, device=means.device) + 0.5) / POOLED
        pooled = (means + noise * torch.special.ndtri(levels)[:, None, None]).flatten(0, 1).T  # [B, POOLED * C]
        pooled, order = pooled.sort(dim=1)
        reached = shares.T.repeat(1, POOLED).gather(1, order).cumsum(dim=1)
        ends = reached[:, -1:] * torch.linspace(0.0, 1.0, PANELS, dtype=means.dtype, device=means.device)
        inside = pooled.gather(1, torch.searchsorted(reached, ends).clamp_max(pooled.shape[1] - 1))
        outer = [(means + reach * noise).aminmax(dim=0)[int(reach > 0.0)] for reach in OUTER]
        return torch.cat((inside, torch.stack(outer, dim=1)), dim=1)

    def _cdf(self, points: Tensor) -> Tensor:
        """Return the distribution function at ``[B, points]``, in single precision, in units of each row's spread."""
        mean, spread = self.mixture.moments()
        centred, widths = ((self.mixture.means - mean) / spread).float(), (self.mixture.noise / spread).float()
        scaled = ((points - mean.unsqueeze(-1)) / spread.unsqueeze(-1)).float().T  # [points, B]
        shares, most = self.mixture.shares.float(), max(1, VALUES_AT_A_TIME // max(1, centred.numel()))
        parts = [
            (normal_cdf((part.unsqueeze(1) - centred) / widths) * shares).sum(dim=1) for part in scaled.split(most)
        ]
        return torch.cat(parts).T.double()


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
    """Return the share of draws whose function value exceeds each threshold, ``[B, T]``."""
    return (means.unsqueeze(-1) > thresholds.to(means)).to(means.dtype).mean(dim=0)
