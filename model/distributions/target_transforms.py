"""Transforms of the target: the network learns ``z``, answers are in ``y``, the change of variables is exact.

Percentiles of ``z`` map to percentiles of ``y``, densities are multiplied by the slope, and the mean and the variance
of ``y`` for a Gaussian ``z`` are closed forms. A new transform is a class and an entry of `Transform` and `TRANSFORMS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from murho.model.distributions.mixtures import bell, normal_cdf
from murho.model.distributions.quantile_steps import SQRT_HALF
from murho.model.errors import OptionError
from murho.model.json_validation import Positive, Stored, null_for


@dataclass(frozen=True, slots=True)
class Limits(Stored):
    """The limits of a target, in its unit.

    Attributes:
        minimum: Least value; -inf: there is no limit.
        maximum: Largest value; inf: there is no limit.
    """

    minimum: Annotated[float, null_for(-math.inf)] = -math.inf
    maximum: Annotated[float, null_for(math.inf)] = math.inf

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            OptionError: The minimum is not below the maximum.
        """
        if not self.minimum < self.maximum:
            raise OptionError(f"the target's minimum {self.minimum:g} must lie below its maximum {self.maximum:g}")

    @property
    def are_none(self) -> bool:
        """Whether both are infinite."""
        return math.isinf(self.minimum) and math.isinf(self.maximum)

    def clip(self, values: Tensor) -> Tensor:
        """Target values clipped to the limits; any shape."""
        return values.clamp(self.minimum, self.maximum)


NO_LIMITS = Limits()
FURTHEST = 38.0
"""Normal score beyond which a Gaussian has no mass in double precision."""
FAR_BEYOND_SEAM = 30.0
"""Normal score from which on Phi counts as 0 and its scaled form is used."""
LEAST_DEVIATION = 1e-12
"""Smallest standard deviation, in units of the largest training target."""


@dataclass(frozen=True, slots=True)
class Identity(Stored):
    """No transform: the network learns the target itself."""

    kind: Literal["none"] = "none"

    @classmethod
    def fit(cls, targets: Tensor) -> Self:  # noqa: ARG003 - the same for all
        """Return the identity, which fits any targets."""
        return cls()

    def forward(self, targets: Tensor) -> Tensor:
        """``z`` of ``y``; any shape."""
        return targets

    def inverse(self, values: Tensor) -> Tensor:
        """``y`` of ``z``; any shape."""
        return values

    def log_slope(self, targets: Tensor) -> Tensor:
        """``log dz/dy`` at ``y``: added to a log density of ``z``, it gives the log density of ``y``."""
        return torch.zeros_like(targets)

    def moments(self, means: Tensor, noise: Tensor, limits: Limits = NO_LIMITS) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of ``clip(y)`` where ``z`` is Gaussian.

        For a Gaussian clipped to an interval see Greene, "Econometric Analysis", chapter 19 (censored variables).

        Args:
            means: Means of ``z``, any shape.
            noise: Standard deviations of ``z``, broadcastable to ``means``.
            limits: Limits of ``y``.

        Returns:
            Two tensors of the shape of ``means``, in the target's unit.
        """
        if limits.are_none:
            return means, noise.expand_as(means)
        low, high = (((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (limits.minimum, limits.maximum))
        below, above, at_low, at_high = normal_cdf(low), normal_cdf(-high), bell(low), bell(high)
        first = low * below + high * above + at_low - at_high
        second = low * (low * below + at_low) + high * (high * above - at_high) + 1.0 - below - above
        return limits.clip(means + noise * first), noise * (second - first.square()).clamp_min(0.0).sqrt()

    def third_moment(self, means: Tensor, variances: Tensor) -> Tensor:  # noqa: ARG002 - a Gaussian has none
        """Third central moment of ``y`` where ``z`` is Gaussian, from the moments of ``y``; their shape."""
        return torch.zeros_like(means)

    def ends(self, limits: Limits) -> tuple[float, float]:
        """Return the limits as ``z``."""
        return limits.minimum, limits.maximum


@dataclass(frozen=True, slots=True)
class Logarithm(Stored):
    """``z = log(y + shift)`` up to the largest training target (the seam), and linear beyond it.

    Beyond the seam ``y = exp(top) (1 + z - top) - shift``: value and slope agree there. An unlimited exponential
    could overflow, or let one draw that strays far from the training rows outweigh all others.

    Attributes:
        shift: Added to the target, in its unit; positive if a training target is zero.
        top: ``z`` at the seam.
    """

    shift: float
    top: float
    kind: Literal["log"] = "log"

    @classmethod
    def fit(cls, targets: Tensor) -> Self | None:
        """Return the logarithm for nonnegative targets; if any is zero, the shift is half the least positive one."""
        least = float(targets.min())
        if least < 0.0 or float(targets.max()) <= 0.0:
            return None
        shift = 0.5 * float(targets[targets > 0.0].min()) if least == 0.0 else 0.0
        return cls(shift, math.log(float(targets.max()) + shift))

    def forward(self, targets: Tensor) -> Tensor:
        """``z`` of ``y``; any shape. A ``y`` that has no logarithm counts as the least one that has."""
        inside = torch.log((targets + self.shift).clamp_min(1e-300))
        beyond = self.top + (targets + self.shift) * math.exp(-self.top) - 1.0
        return torch.where(inside <= self.top, inside, beyond)

    def inverse(self, values: Tensor) -> Tensor:
        """``y`` of ``z``; any shape, finite wherever ``z`` is."""
        inside = torch.exp(values.clamp_max(self.top))
        return inside * (1.0 + (values - self.top).clamp_min(0.0)) - self.shift

    def log_slope(self, targets: Tensor) -> Tensor:
        """See `Identity.log_slope`."""
        return -torch.log((targets + self.shift).clamp_min(1e-300)).clamp_max(self.top)

    def moments(self, means: Tensor, noise: Tensor, limits: Limits = NO_LIMITS) -> tuple[Tensor, Tensor]:
        """See `Identity.moments`: truncated moments of both sides of the seam, and the masses of the limits."""
        unit = math.exp(self.top)
        means, noise = means - self.top, noise.expand_as(means)  # the seam is at 0, and y + shift is 1 there
        lower, upper = (end - self.top for end in self.ends(limits))
        of_power = []
        for power, moment in enumerate(_line_moments(means, noise, max(lower, 0.0), max(upper, 0.0)), start=1):
            for end, sign, limit in ((upper, 1.0, limits.maximum), (lower, -1.0, limits.minimum)):
                if end > -math.inf:
                    seam = min(end, 0.0)
                    moment = moment + sign * math.exp(power * seam) * _exponential_moment(means - seam, noise, power)
                if math.isfinite(end):
                    value = ((limit + self.shift) / unit) ** power
                    moment = moment + value * normal_cdf(sign * (means - end) / noise)
            of_power.append(moment)
        first, second = of_power
        deviation = (second - first.square()).clamp_min(LEAST_DEVIATION**2).sqrt()
        return limits.clip(unit * first - self.shift), unit * deviation

    def third_moment(self, means: Tensor, variances: Tensor) -> Tensor:
        """Return that of a lognormal: ``(v / m)^2 (3 m + v / m)``; above the seam it is a little too large."""
        ratio = variances / (means + self.shift)
        return ratio.square() * (3.0 * (means + self.shift) + ratio)

    def ends(self, limits: Limits) -> tuple[float, float]:
        """Return the limits as ``z``."""
        ends = torch.tensor([limits.minimum, limits.maximum], dtype=torch.float64)
        lower, upper = torch.where(ends.isinf(), ends, self.forward(ends)).tolist()
        return lower, upper


def _line_moments(means: Tensor, noise: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """``E[(1 + z)^k; lower < z < upper]`` for a Gaussian z and k of 1 and 2; the shape of ``means``."""
    start, end = (((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (lower, upper))
    share = normal_cdf(-start) - normal_cdf(-end)
    low, high = noise * bell(start), noise * bell(end)
    line = 1.0 + means
    first = line * share + low - high
    second = (line.square() + noise.square()) * share
    return first, second + (2.0 * line + noise * start) * low - (2.0 * line + noise * end) * high


def _exponential_moment(means: Tensor, noise: Tensor, power: int) -> Tensor:
    """``E[exp(power z); z < 0] = exp(power mean + (power noise)^2 / 2) Phi(-mean / noise - power noise)``.

    Where Phi underflows, as ``exp(-mean^2 / (2 noise^2)) erfcx((power noise + mean / noise) / sqrt(2)) / 2``, which is
    equal.
    """
    reach = means / noise
    excess = power * noise + reach
    near = torch.exp(power * means + 0.5 * (power * noise).square()) * normal_cdf(-excess)
    far = 0.5 * torch.exp(-0.5 * reach.square()) * torch.special.erfcx(excess * SQRT_HALF)
    return torch.where(excess > FAR_BEYOND_SEAM, far, near)


Transform: TypeAlias = Identity | Logarithm
"""A smooth increasing map from the target ``y`` to ``z``, which the network learns."""


@dataclass(frozen=True, slots=True)
class Standardisation(Stored):
    """The standardised target that the network learns: ``(transform(y) - location) / scale``.

    Attributes:
        transform: Applied to the target first.
        location: Mean of the transformed training targets.
        scale: Standard deviation of what a line through the features leaves of them; of a fit that does not start at a
            line (`model.bbb.line`), their standard deviation.
        limits: Limits of the target, in its unit; None: there are none.
    """

    transform: Annotated[Transform, Field(discriminator="kind")]
    location: float
    scale: Positive
    limits: Limits | None = None

    def forward(self, targets: Tensor) -> Tensor:
        """Standardised targets of targets in their own unit; any shape."""
        return (self.transform.forward(targets) - self.location) / self.scale

    def standard_limits(self) -> tuple[float, float] | None:
        """Return the standardised limits, rounded to float32 as targets are; None: there are none."""
        if self.limits is None:
            return None
        ends = torch.tensor(self.transform.ends(self.limits), dtype=torch.float64)
        lower, upper = ((ends - self.location) / self.scale).float().tolist()
        return lower, upper


TRANSFORMS: dict[str, type[Transform]] = {"none": Identity, "log": Logarithm}
"""Transforms by their name on the command line and in a checkpoint."""
