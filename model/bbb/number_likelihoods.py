"""Likelihoods of numbers: fixed, homoscedastic and heteroscedastic Gaussian noise, Gaussian mixtures, and counts.

A target at a limit counts as a value at or beyond it (Tobin 1958; a "Tobit" model): its log density is the logarithm of
the Gaussian's tail there.

Counts have a negative binomial whose mean and dispersion are outputs of the network. Their predictive is an
equal-weight mixture over draws. Distribution functions, percentiles and CRPS come from a table of the mixture's
distribution function at some whole numbers, the knots of each row. While the spread is small the knots are all whole
numbers, and the table is exact. For larger counts they lie at most a twelfth of the narrowest draw's standard deviation
apart. Between knots the distribution function is a line, off by at most 0.0003 or so.

A line between whole numbers is also the distribution function of the jittered count ``Y - 1 + U`` with U uniform on
[0, 1]. So scores and calibration, which need a continuous distribution, are those of the jittered count: its
probability integral transform is the randomised one (Czado, Gneiting & Held 2009, "Predictive model assessment for
count data"), and its percentiles, rounded up, are those of the count.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from murho.model.bbb.likelihood import INITIAL_NOISE, NOISE_FLOOR, NumericLikelihood
from murho.model.bbb.network import inverse_softplus
from murho.model.distributions.mixtures import LOG_SQRT_2PI, Mixture, WideRule, normal_cdf, score_of_tails
from murho.model.distributions.predictive import Predictive, split
from murho.model.distributions.target_transforms import Limits, Logarithm, Standardisation
from murho.model.errors import OptionError


class GaussianMixtureLikelihood(NumericLikelihood):
    """An observation model of numbers: given a draw, the standardised target is a mixture of K Gaussians."""

    @abstractmethod
    def components(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the distribution of an observation given each draw: K Gaussians.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.

        Returns:
            Means ``[S, B, K]``, standard deviations broadcastable to the means, and weights ``[S, B, K]`` that sum to 1
            over K. The weights are None where K is 1.
        """

    def log_gaussians(self, means: Tensor, noise: Tensor, targets: Tensor) -> Tensor:
        """Log density of the targets under each Gaussian, or the logarithm of its tail where a target is at a limit.

        Args:
            means: ``[M, B, K]``.
            noise: Standard deviations, broadcastable to the means.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.

        Returns:
            ``[M, B, K]``, nats.
        """
        targets = targets.unsqueeze(-1)
        residual = (targets - means) / noise
        log_density = -0.5 * residual.square() - torch.log(noise) - LOG_SQRT_2PI
        if self.limits is None:
            return log_density
        above, below = targets >= self.limits[1], targets <= self.limits[0]
        log_tail = torch.special.log_ndtr((below.to(residual) - above.to(residual)) * residual)
        return torch.where(above | below, log_tail, log_density)

    def reweight_mean_gradient(self, outputs: Tensor, weights: Tensor, beta: float) -> Tensor:
        """Means with even pulls, where the noise differs between rows; see `Likelihood.reweight_mean_gradient`."""
        noise = self.components(outputs.detach())[1]
        if noise.shape[1] == 1:
            return outputs
        factors, weights = noise.pow(2.0 * beta), weights.unsqueeze(-1)
        factors = factors / ((factors * weights).sum(dim=1, keepdim=True) / weights.sum(dim=-2, keepdim=True))
        means = outputs[..., : self.means]
        return torch.cat((means * factors + (means * (1.0 - factors)).detach(), outputs[..., self.means :]), dim=-1)

    def function_values(self, outputs: Tensor, members: Tensor) -> Tensor:
        """Means of the mixtures; see `Likelihood.function_values`."""
        means, _, weights = self.components(outputs, members)
        return means[..., 0] if weights is None else (weights * means).sum(dim=-1)

    def parts(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, ...]:
        """Means, noise and, if any, weights of the Gaussians; see `NumericLikelihood.parts`."""
        return tuple(part for part in self.components(outputs, members) if part is not None)

    def predictive(
        self, parts: Sequence[Tensor], standardisation: Standardisation, wide: WideRule | None = None
    ) -> Predictive:
        """Return the mixture of Gaussians, widened and clipped; see `NumericLikelihood.predictive`."""
        means, noise, *weights = parts
        predictive = Predictive.of(
            means * standardisation.scale + standardisation.location,
            noise * standardisation.scale,
            weights[0] if weights else None,
            standardisation.transform,
            standardisation.limits,
        )
        return predictive if wide is None else predictive.with_wide(wide, wide.most * standardisation.scale)


class GaussianNoise(GaussianMixtureLikelihood):
    """``N(y; output_0, noise^2)``. A subclass defines the noise."""

    outputs = 1
    means = 1
    mixture_outputs = True

    @abstractmethod
    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Return standard deviation of an observation given each draw, broadcastable to ``outputs[..., 0]``.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.
        """

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of a Gaussian, ``[M, B]``; see `Likelihood.log_density`."""
        means, noise, _ = self.components(outputs)
        return self.log_gaussians(means, noise, targets)[..., 0]

    def components(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One Gaussian per row (K = 1), without weights; see `Likelihood.components`."""
        return outputs[..., :1], self.noise(outputs, members).unsqueeze(-1), None


class FixedNoise(GaussianNoise):
    """``N(y; output, sigma^2)`` with a known sigma.

    Attributes:
        sigma: Standard deviation in standardised units.
    """

    kind = "fixed"
    wide_tails = False

    def __init__(self, sigma: float | None) -> None:
        """Store the known noise.

        Args:
            sigma: Standard deviation in standardised units.

        Raises:
            OptionError: ``sigma`` is not a positive number.
        """
        super().__init__()
        if sigma is None or not 0.0 < sigma < math.inf:
            raise OptionError(f"fixed noise needs a positive standard deviation, not {sigma!r}: give --noise-sigma")
        self.sigma = sigma

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one sigma for all
        """Return the known sigma, ``[1, 1]``; see `GaussianNoise.noise`."""
        return outputs.new_full((1, 1), self.sigma)


def noise_of(rho: Tensor) -> Tensor:
    """``floor + softplus(rho)``: the learned standard deviation, standardised units; any shape."""
    return NOISE_FLOOR + functional.softplus(rho)


class HomoscedasticNoise(GaussianNoise):
    """``N(y; output, noise^2)`` with the learned ``noise = floor + softplus(rho)``, one per member.

    Attributes:
        rho: Unconstrained scale of the noise, ``[M, 1]``.
    """

    kind = "homoscedastic"

    def __init__(self, members: int, initial: float = INITIAL_NOISE) -> None:
        """Start from a given noise.

        Args:
            members: M.
            initial: Initial standard deviation, standardised units.
        """
        super().__init__()
        rho = inverse_softplus(torch.tensor(initial - NOISE_FLOOR, dtype=torch.float64)).float()
        self.rho = nn.Parameter(rho.expand(members, 1).clone())
        self.earlier: tuple[float, Tensor] | None = None

    def remember(self, share: float) -> None:
        """Count earlier rows with squared residuals as large as the present variance; see `Likelihood.remember`."""
        self.earlier = share, noise_of(self.rho.detach()).square()

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - the same for every row
        """Return the noise of each member, ``[M, 1]`` or ``[S, 1]``; see `GaussianNoise.noise`."""
        return noise_of(self.rho if members is None else self.rho[members])

    def earlier_loss(self) -> float | Tensor:
        """``share (log noise + variance / (2 noise^2))``: minus the log density of earlier rows."""
        if self.earlier is None:
            return 0.0
        (share, variance), noise = self.earlier, noise_of(self.rho)
        return share * (torch.log(noise) + 0.5 * variance.to(noise) / noise.square()).sum()


class HeteroscedasticNoise(GaussianNoise):
    """``N(y; output_0, noise^2)`` with ``noise = floor + softplus(output_1)``."""

    kind = "heteroscedastic"
    outputs = 2

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - outputs are per draw already
        """Return the noise of each row, ``[M, B]`` or ``[S, B]``; see `GaussianNoise.noise`."""
        return NOISE_FLOOR + functional.softplus(outputs[..., 1])

    @property
    def initial_outputs(self) -> dict[int, float]:
        """The initial noise, the same for every row; see `Likelihood.initial_outputs`."""
        return {1: float(inverse_softplus(torch.tensor(INITIAL_NOISE)))}


MOST_COMPONENTS = 20


class MixtureNoise(GaussianMixtureLikelihood):
    """``sum_k weight_k N(y; mean_k, noise_k^2)``: means, noises and weights are outputs of the network.

    For targets with skewed, heavy-tailed or multimodal scatter (Bishop 1994, "Mixture density networks"). The P = 3 K
    outputs are K means, then K noises before softplus, then K weights before softmax.
    """

    kind = "mixture"
    mixture_outputs = True

    def __init__(self, components: int | None) -> None:
        """Store the number of components.

        Args:
            components: K, 1 to 20.

        Raises:
            OptionError: K is out of range.
        """
        super().__init__()
        if components is None or not 1 <= components <= MOST_COMPONENTS:
            raise OptionError(
                f"a mixture has 1 to {MOST_COMPONENTS} components a row, not {components}: see --noise-components"
            )
        self.means = components
        self.outputs = 3 * components

    @property
    def initial_outputs(self) -> dict[int, float]:
        """Initial noises and weights, the same for every row; see `Likelihood.initial_outputs`."""
        start = float(inverse_softplus(torch.tensor(INITIAL_NOISE)))
        noises = dict.fromkeys(range(self.means, 2 * self.means), start)
        return noises | dict.fromkeys(range(2 * self.means, 3 * self.means), 0.0)

    def components(
        self,
        outputs: Tensor,
        members: Tensor | None = None,  # noqa: ARG002 - outputs are per draw already
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Means, noises and weights of the K Gaussians; see `Likelihood.components`."""
        means, raw, logits = outputs.split(self.means, dim=-1)
        return means, NOISE_FLOOR + functional.softplus(raw), _weights(logits)

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """Return the mixture of ``others``, moved by the weighted mean of the shifts of its components.

        See `Likelihood.with_scatter_of` for the arguments. Weights are part of the scatter: extrapolated weights could
        select components that no training row has fitted, and the means of those could be anything.
        """
        there, scatter = others[..., : self.means], others[..., self.means :]
        weights = _weights(others[..., 2 * self.means :])
        moved = (weights * (outputs[..., : self.means] - there)).sum(dim=-1, keepdim=True)
        return torch.cat((there + moved, scatter), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of the mixture, ``[M, B]``; see `Likelihood.log_density`."""
        means, raw, logits = outputs.split(self.means, dim=-1)
        of_each = self.log_gaussians(means, NOISE_FLOOR + functional.softplus(raw), targets)
        return torch.logsumexp(torch.log_softmax(logits, dim=-1) + of_each, dim=-1)


def _weights(logits: Tensor) -> Tensor:
    """Softmax over the components. Transposed, it is ten times as fast in the engine's layout (rows contiguous)."""
    return torch.softmax(logits.transpose(-1, -2), dim=-2).transpose(-1, -2)


LEAST_DISPERSION, INITIAL_DISPERSION = 1e-5, 0.25
LARGEST_COUNT = 100_000
"""Up to here a standardised logarithm in single precision gives the count back."""


class NegativeBinomial(NumericLikelihood):
    """``NB(y; mean, dispersion)``: mean ``m``, variance ``m + dispersion m^2``; Poisson in the limit of no dispersion.

    The network learns the logarithm of the target, and its first output is that of m: ``m = exp(z)`` up to the largest
    training target, and linear beyond it (`model.distributions.target_transforms.Logarithm`). The second one gives
    ``dispersion = 1e-5 + softplus(output)``.
    """

    kind = "negative-binomial"
    outputs = 2
    means = 1
    only_transform = "log"
    wide_tails = False
    standardisation = Standardisation(Logarithm(0.5, math.log(100.5)), location=0.0, scale=1.0)

    @classmethod
    def first_refused(cls, targets: NDArray[np.float64]) -> tuple[int, str] | None:
        """Return the first target that is no count; see `Likelihood.first_refused`."""
        refused = (targets < 0.0) | (targets != np.floor(targets)) | (targets > LARGEST_COUNT)
        refused &= ~np.isnan(targets)
        if not refused.any():
            return None
        return int(np.argmax(refused)), f"a count, a whole number from 0 to {LARGEST_COUNT:,}"

    @classmethod
    def allows(cls, limits: Limits) -> bool:
        """Return counts have no negative values and no largest one; see `Likelihood.allows`."""
        return limits.minimum <= 0.0 and math.isinf(limits.maximum)

    def learn_target(self, standardisation: Standardisation) -> None:
        """Keep the logarithm of the target; see `Likelihood.learn_target`."""
        self.standardisation = standardisation

    @property
    def initial_outputs(self) -> dict[int, float]:
        """The initial dispersion, the same for every row; see `Likelihood.initial_outputs`."""
        return {1: float(inverse_softplus(torch.tensor(INITIAL_DISPERSION)))}

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the counts, ``[M, B]``; see `Likelihood.log_density`."""
        counts = _unstandardise(targets, self.standardisation).round_().clamp_min_(0.0)
        means, dispersion = self._moments(self.parts(outputs.double()), self.standardisation)
        return log_mass(counts, means[..., 0], dispersion[..., 0]).to(outputs)

    def function_values(self, outputs: Tensor, members: Tensor) -> Tensor:  # noqa: ARG002 - outputs are per draw already
        """Logarithms of the means, standardised; see `Likelihood.function_values`."""
        return outputs[..., 0]

    def parts(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, ...]:  # noqa: ARG002 - as above
        """Return the two outputs, ``[S, B, 1]`` each; see `NumericLikelihood.parts`."""
        return outputs[..., :1], outputs[..., 1:]

    def predictive(
        self,
        parts: Sequence[Tensor],
        standardisation: Standardisation,
        wide: WideRule | None = None,  # noqa: ARG002 - the dispersion makes the tails
    ) -> CountPredictive:
        """Return the mixture of negative binomials; see `NumericLikelihood.predictive`."""
        means, dispersion = self._moments(parts, standardisation)
        return CountPredictive.of_counts(means[..., 0], dispersion[..., 0])

    @staticmethod
    def _moments(parts: Sequence[Tensor], standardisation: Standardisation) -> tuple[Tensor, Tensor]:
        """Mean and dispersion of the counts."""
        location, raw = parts
        transform = standardisation.transform
        shift = transform.shift if isinstance(transform, Logarithm) else 0.0
        means = transform.inverse(location * standardisation.scale + standardisation.location) + shift
        return means.clamp_min(torch.finfo(torch.float32).tiny), LEAST_DISPERSION + functional.softplus(raw)


def _unstandardise(targets: Tensor, standardisation: Standardisation) -> Tensor:
    values = targets.double() * standardisation.scale + standardisation.location
    return standardisation.transform.inverse(values)


VALUES_AT_A_TIME = 2**18
"""Probabilities under single draws that are computed together: 2 MiB, and a few temporaries."""
CELLS_PER_SPREAD = 12.0
FURTHEST_SCORE = 6.0
"""Largest size of a normal score: the table ends at tails of about 1e-9."""
ROUNDING = 1e-7
GOLDEN = 0.6180339887498949
"""Multiples of it, without their whole part, are spread evenly over [0, 1] (Weyl)."""


def log_mass(counts: Tensor, means: Tensor, dispersion: Tensor) -> Tensor:
    """Log probability of counts under negative binomials with variance ``mean + dispersion mean^2``, nats.

    With ``r = 1 / dispersion``: ``lgamma(y + r) - lgamma(r) - lgamma(y + 1) - r log(1 + mean / r) + y log(mean / (r +
    mean))`` (Cameron & Trivedi 2013, "Regression analysis of count data", NB2). The limit of no dispersion is Poisson.

    Args:
        counts: At least 0; between whole numbers the result is a smooth continuation. Float64, as the others.
        means: Positive, broadcastable to ``counts``.
        dispersion: Positive, broadcastable to ``counts``.
    """
    size = dispersion.reciprocal()
    growth = torch.log1p(dispersion * means)
    binomial = torch.lgamma(counts + size) - torch.lgamma(size) - torch.lgamma(counts + 1.0)
    return binomial - size * growth + counts * (torch.log(dispersion * means) - growth)


@dataclass(frozen=True)
class CountPredictive(Predictive):
    """The predictive distribution of the counts of B rows; float64.

    ``means`` and ``noise`` are mean and standard deviation of the negative binomial of each draw. ``mixture`` has
    Gaussians of these moments: Monte Carlo standard errors are estimated by them.

    Attributes:
        dispersion: ``(variance - mean) / mean^2`` given each draw, ``[S, B]``.
    """

    dispersion: Tensor = field(kw_only=True)

    @classmethod
    def of_counts(cls, means: Tensor, dispersion: Tensor) -> CountPredictive:
        """Build the predictive from mean and dispersion under each draw, ``[S, B]`` each, float64."""
        noise = (means + dispersion * means.square()).sqrt()
        return cls(means, noise, split(means, noise), Mixture(means, noise), dispersion=dispersion)

    def normal_score(self, values: Tensor) -> Tensor:
        """Return normal scores of the randomised probability integral transform of counts ``[..., B]``, within ±6.

        The uniform numbers behind it depend on a row's place among the B alone.
        """
        place = torch.arange(values.shape[-1], dtype=values.dtype, device=values.device)
        below = self._below(values - (1.0 - (0.5 + GOLDEN * place).frac()))
        return score_of_tails(below, 1.0 - below).clamp_(-FURTHEST_SCORE, FURTHEST_SCORE)

    def quantiles(self, scores: Tensor) -> Tensor:
        """Quantiles of the jittered count, ``[B, K]``; `reported` makes percentiles of the count of them."""
        knots, below = self._table
        scores = scores.to(below).clamp(-FURTHEST_SCORE, FURTHEST_SCORE).expand(len(below), -1)
        levels = normal_cdf(scores).contiguous()
        end = torch.searchsorted(below, levels).clamp_(1, below.shape[1] - 1)
        start, stop, least, most = (part.gather(1, index) for part in (knots, below) for index in (end - 1, end))
        share = (levels - least) / (most - least).clamp_min(torch.finfo(below.dtype).tiny)
        return torch.lerp(start, stop, share.clamp_(0.0, 1.0))

    def report_quantiles(self, quantiles: Tensor) -> Tensor:
        """See `Predictive.report_quantiles`: the least count with at least this probability up to it."""
        return torch.ceil(quantiles - ROUNDING).clamp_min_(0.0) + 0.0  # no -0

    def third_moment(self) -> Tensor:
        """See `Predictive.third_moment`: ``v (2 v / m - 1)`` for mean m and variance v of a negative binomial."""
        variances = self.noise.square()
        return (variances * (2.0 * variances / self.means - 1.0)).mean(dim=0)

    def log_density(self, values: Tensor) -> Tensor:
        """Log probability of one count per row, ``[B]``, nats."""
        masses = log_mass(values, self.means, self.dispersion)
        return torch.logsumexp(masses, dim=0) - torch.log(masses.new_tensor(float(len(masses))))

    def tails(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """``P(Y <= t)`` and ``P(Y > t)`` of every row at thresholds ``[T]``, ``[B, T]`` each."""
        values = thresholds.to(self.means).floor().unsqueeze(-1).expand(-1, self.means.shape[1])
        below = self._below(values).T
        return below, 1.0 - below

    def crps(self, values: Tensor) -> Tensor:
        """Continuous ranked probability score at one count per row, ``[B]``: the sum of ``(F(k) - [k >= y])^2``.

        Exact where the table is; else to a relative error of about 3e-4.
        """
        knots, below = self._table
        widths, first = knots.diff(dim=1), below[:, :-1]
        rise = below.diff(dim=1) / widths.clamp_min(1.0)
        rest = first - 1.0
        total = widths * rest.square() + rest * rise * widths * (widths + 1.0)
        total = total + rise.square() * widths * (widths + 1.0) * (2.0 * widths + 1.0) / 6.0
        smaller = (values.unsqueeze(1) - knots[:, :-1] - 1.0).clamp_min_(0.0).minimum(widths)  # counts k < y of a cell
        total = total + smaller * (2.0 * first - 1.0) + rise * smaller * (smaller + 1.0)
        beyond = (values - 1.0 - knots[:, -1]).clamp_min_(0.0) + (knots[:, 0] + 1.0 - values).clamp_min_(0.0)
        return total.sum(dim=1) + beyond

    def _below(self, values: Tensor) -> Tensor:
        """Distribution function of the jittered count at values ``[..., B]``."""
        knots, below = self._table
        wanted = values.to(below).reshape(-1, len(below)).T.contiguous()
        end = torch.searchsorted(knots, wanted).clamp_(1, knots.shape[1] - 1)
        start, stop, least, most = (part.gather(1, index) for part in (knots, below) for index in (end - 1, end))
        share = ((wanted - start) / (stop - start).clamp_min(1.0)).clamp_(0.0, 1.0)
        return torch.lerp(least, most, share).T.reshape(values.shape)

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        """Knots of each row, and the distribution function there, ``[B, J]`` each. Equal knots are padding."""
        knots = _knots(self.means, self.noise, self.dispersion)
        widths = knots.diff(dim=1)
        # The probability of a cell's h whole numbers is h times that in its middle: off by 1 / (24 * 12^2) of it.
        middles, masses = knots[:, :-1] + 0.5 * (widths + 1.0), torch.zeros_like(widths)
        used = (widths > 0.0).sum(dim=1)
        order = used.argsort()  # rows together that have about as many cells
        for rows in order.split(max(1, VALUES_AT_A_TIME // (len(self.means) * widths.shape[1]))):
            cells = max(used[rows[-1:]].tolist(), default=0)
            of_draws = self.means[:, rows].unsqueeze(2), self.dispersion[:, rows].unsqueeze(2)
            masses[rows, :cells] = log_mass(middles[rows, :cells], *of_draws).exp_().mean(dim=0)
        below = (masses * widths).cumsum(dim=1)
        return knots, torch.nn.functional.pad(below / below[:, -1:], (1, 0))


def _knots(means: Tensor, noise: Tensor, dispersion: Tensor) -> Tensor:
    """Knots that depend on a row's own draws alone, ``[B, J]``: whole numbers from a tail of 1e-9 to the other.

    The spread at a count y is ``sqrt(y + d y^2)``, with d the least dispersion, at most 1. Where a twelfth of it is
    below 1, all whole numbers are knots. Beyond, the transform of constant spread, ``(2 / sqrt(d)) asinh(sqrt(d y))``,
    rises by a twelfth from knot to knot.
    """
    least = (means - 7.0 * noise).amin(dim=0).floor().clamp_min(-1.0)
    # The upper tail is between that of a Gaussian and that of a Gamma distribution of shape 1 / dispersion.
    most = (means + (6.5 + 14.0 * dispersion.sqrt()) * noise + 12.0).amax(dim=0).ceil()
    root = dispersion.amin(dim=0).clamp_max(1.0).sqrt()
    square = CELLS_PER_SPREAD**2
    first = (2.0 * square / (1.0 + (1.0 + 4.0 * square * root.square()).sqrt())).ceil().maximum(least)
    begin, end = (2.0 / root * torch.asinh(root * counts.sqrt()) for counts in (first, most))
    whole = first.minimum(most) - least
    cells = whole + ((end - begin) * CELLS_PER_SPREAD).ceil().clamp_min(0.0)
    steps = torch.arange(int(max(cells.tolist(), default=1.0)) + 1, device=means.device) - whole.unsqueeze(1)
    spread = begin.unsqueeze(1) + steps.clamp_min(0.0) / CELLS_PER_SPREAD
    beyond = (torch.sinh(0.5 * root.unsqueeze(1) * spread) / root.unsqueeze(1)).square()
    knots = torch.where(steps < 0.0, first.minimum(most).unsqueeze(1) + steps, (beyond + ROUNDING).floor())
    return knots.minimum(most.unsqueeze(1))
