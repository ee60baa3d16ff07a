"""Transforms of the target: the network learns ``z``, answers are in ``y``, the change of variables is exact.

Percentiles of ``z`` map to percentiles of ``y``, densities are multiplied by the slope, and the mean and the variance
of ``y`` for a Gaussian ``z`` are closed forms. A new transform is a class and an entry of `TRANSFORMS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, Self

import torch
from pydantic import Field
from torch import Tensor

from murho.model.distributions.mixtures import LOG_SQRT_2PI, normal_cdf
from murho.model.errors import OptionError
from murho.model.json_validation import Positive, Stored, null_for, read_as

__all__ = [
    "FURTHEST",
    "LEAST_DEVIATION",
    "NEAR_SEAM",
    "TRANSFORMS",
    "Identity",
    "Limits",
    "Logarithm",
    "Standardisation",
    "Transform",
    "clipped_gaussian_moments",
    "line_moments",
]


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

    def clip(self, values: Tensor) -> Tensor:
        """Target values clipped to the limits; any shape."""
        return values.clamp(self.minimum, self.maximum)

    def clip_answer(self, answer: dict[str, Tensor], thresholds: Tensor) -> dict[str, Tensor]:
        """An answer without anything beyond the limits, whatever calibration and rounding did.

        Args:
            answer: Numbers by the names of `model.predictive.prediction.Prediction`.
            thresholds: The thresholds of ``exceedance``, ``[T]``.
        """
        answer = dict(answer)
        for name in ("mean", "percentiles", "draws"):
            if name in answer:
                answer[name] = self.clip(answer[name])
        if "exceedance" in answer:
            above = torch.where(thresholds >= self.maximum, 0.0, answer["exceedance"])
            answer["exceedance"] = torch.where(thresholds < self.minimum, 1.0, above)
        return answer


FURTHEST = 38.0
"""Normal score beyond which a Gaussian has no mass in double precision."""


def clipped_gaussian_moments(means: Tensor, noise: Tensor, minimum: float, maximum: float) -> tuple[Tensor, Tensor]:
    """Moments of a Gaussian clipped to an interval (a censored Gaussian: Greene, "Econometric Analysis", chapter 19).

    In units of the noise, from the point c of the interval that is nearest to the mean: the clipped value is
    ``c + U - L`` with ``U = min((x - c)+, b - c)`` and ``L = min((c - x)+, c - a)``, one of which is 0. With
    ``h(t) = E[(x - t)+] = phi(t) - t Q(t)`` and ``g(t) = E[((x - t)+)^2] = Q(t) - t h(t)``, for Q the upper tail of a
    standard Gaussian: ``E[U] = h(c) - h(b)`` and ``E[U^2] = g(c) - g(b) - 2 (b - c) h(b)``; L by symmetry. Far beyond
    a limit nothing cancels: h and g are small there themselves.

    Args:
        means: Any shape, float64.
        noise: Standard deviations, broadcastable to ``means``.
        minimum: a; may be -inf.
        maximum: b; may be inf.

    Returns:
        Mean and standard deviation, the shape of ``means``.
    """
    lower, upper = (((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (minimum, maximum))
    centre = torch.zeros_like(lower).clamp(lower, upper)
    first_up, second_up = _part(centre, upper)
    first_down, second_down = _part(-centre, -lower)
    first = first_up - first_down
    variance = (second_up + second_down - first.square()).clamp_min(0.0)
    mean = means.clamp(minimum, maximum) + noise * first
    return mean.clamp(minimum, maximum), noise * variance.sqrt()


def _part(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of ``min((x - start)+, end - start)`` for a standard Gaussian x."""
    (first, second), (first_beyond, second_beyond) = _excess(start), _excess(end)
    return first - first_beyond, second - second_beyond - 2.0 * (end - start) * first_beyond


def _excess(threshold: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of ``(x - threshold)+`` for a standard Gaussian x."""
    above = normal_cdf(-threshold)
    first = torch.exp(-0.5 * threshold.square() - LOG_SQRT_2PI) - threshold * above
    return first, above - threshold * first


def line_moments(means: Tensor, noise: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """``E[(1 + z)^k; lower < z < upper]`` for a Gaussian z and k of 1 and 2; the shape of ``means``.

    Args:
        means: Any shape, float64.
        noise: Standard deviations, the shape of ``means``.
        lower: May be -inf.
        upper: May be inf.
    """
    ends = [((limit - means) / noise).clamp(-FURTHEST, FURTHEST) for limit in (lower, upper)]
    share = normal_cdf(-ends[0]) - normal_cdf(-ends[1])
    low, high = (torch.exp(-0.5 * end.square() - LOG_SQRT_2PI) for end in ends)
    line = 1.0 + means
    first = line * share + noise * (low - high)
    second = (line.square() + noise.square()) * share
    second = second + noise * ((2.0 * line + noise * ends[0]) * low - (2.0 * line + noise * ends[1]) * high)
    return first, second


NEAR_SEAM = 7.0
"""Standard deviations below the seam beyond which `Logarithm` has the moments of a lognormal, to 1e-12."""
FAR_BEYOND_SEAM = 30.0
"""Normal score from which on Phi counts as 0 and its scaled form is used."""
LEAST_DEVIATION = 1e-12
"""Smallest standard deviation, in units of the largest training target."""


class Transform(Protocol):
    """A smooth increasing map from the target ``y`` to ``z``, which the network learns."""

    @property
    def kind(self) -> str:
        """Its name on the command line and in a checkpoint."""
        ...

    @classmethod
    def fit(cls, targets: Tensor) -> Self | None:
        """The transform for training targets ``[N]``, or None where it can't be used."""
        ...

    def forward(self, targets: Tensor) -> Tensor:
        """``z`` of ``y``; any shape. A ``y`` outside the transform's domain is clipped to it."""
        ...

    def inverse(self, values: Tensor) -> Tensor:
        """``y`` of ``z``; any shape, finite wherever ``z`` is."""
        ...

    def log_slope(self, targets: Tensor) -> Tensor:
        """``log dz/dy`` at ``y``: added to a log density of ``z``, it gives the log density of ``y``."""
        ...

    def moments(self, means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of ``y`` where ``z`` is Gaussian.

        Args:
            means: Means of ``z``, any shape.
            noise: Standard deviations of ``z``, broadcastable to ``means``.

        Returns:
            Two tensors of the shape of ``means``, in the target's unit.
        """
        ...

    def clipped_moments(self, means: Tensor, noise: Tensor, minimum: float, maximum: float) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of ``clip(y, minimum, maximum)`` where ``z`` is Gaussian; see `moments`.

        Args:
            means: Means of ``z``, any shape.
            noise: Standard deviations of ``z``, broadcastable to ``means``.
            minimum: In the target's unit; may be -inf.
            maximum: In the target's unit; may be inf.
        """
        ...


@dataclass(frozen=True, slots=True)
class Identity(Stored):
    """No transform: the network learns the target itself."""

    kind: Literal["none"] = "none"

    @classmethod
    def fit(cls, targets: Tensor) -> Self:  # noqa: ARG003 - the same for all
        """The identity, which fits any targets."""
        return cls()

    def forward(self, targets: Tensor) -> Tensor:
        """See `Transform.forward`."""
        return targets

    def inverse(self, values: Tensor) -> Tensor:
        """See `Transform.inverse`."""
        return values

    def log_slope(self, targets: Tensor) -> Tensor:
        """See `Transform.log_slope`."""
        return torch.zeros_like(targets)

    def moments(self, means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """See `Transform.moments`."""
        return means, noise.expand_as(means)

    def clipped_moments(self, means: Tensor, noise: Tensor, minimum: float, maximum: float) -> tuple[Tensor, Tensor]:
        """See `Transform.clipped_moments`."""
        return clipped_gaussian_moments(means, noise, minimum, maximum)


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
        """The logarithm for nonnegative targets; if any is zero, the shift is half the least positive one."""
        least = float(targets.min())
        if least < 0.0 or float(targets.max()) <= 0.0:
            return None
        shift = 0.5 * float(targets[targets > 0.0].min()) if least == 0.0 else 0.0
        return cls(shift, math.log(float(targets.max()) + shift))

    def forward(self, targets: Tensor) -> Tensor:
        """See `Transform.forward`."""
        inside = torch.log((targets + self.shift).clamp_min(1e-300))
        beyond = self.top + (targets + self.shift) * math.exp(-self.top) - 1.0
        return torch.where(inside <= self.top, inside, beyond)

    def inverse(self, values: Tensor) -> Tensor:
        """See `Transform.inverse`."""
        inside = torch.exp(values.clamp_max(self.top))
        return inside * (1.0 + (values - self.top).clamp_min(0.0)) - self.shift

    def log_slope(self, targets: Tensor) -> Tensor:
        """See `Transform.log_slope`."""
        return -torch.log((targets + self.shift).clamp_min(1e-300)).clamp_max(self.top)

    def moments(self, means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """See `Transform.moments`: lognormal moments, and near the seam truncated moments of both sides.

        The lognormal standard deviation is computed without overflow or cancellation (Johnson, Kotz and Balakrishnan
        1994, "Continuous univariate distributions", chapter 14).
        """
        noise = noise.expand_as(means).contiguous()
        means = (means - self.top).contiguous()  # in units of y(top) + shift from here on
        value, deviation = _moments(means, noise)
        unit = math.exp(self.top)
        return unit * value - self.shift, unit * deviation.clamp_min_(LEAST_DEVIATION)

    def clipped_moments(self, means: Tensor, noise: Tensor, minimum: float, maximum: float) -> tuple[Tensor, Tensor]:
        """See `Transform.clipped_moments`: truncated moments of both sides of the seam, and the limits' masses."""
        unit = math.exp(self.top)
        lower, upper = (
            (limit, 0.0)
            if math.isinf(limit)
            else (float(self.forward(torch.tensor(limit, dtype=torch.float64))) - self.top, (limit + self.shift) / unit)
            for limit in (minimum, maximum)
        )
        value, deviation = _clipped_moments(means - self.top, noise.expand_as(means), lower, upper)
        return (unit * value - self.shift).clamp(minimum, maximum), unit * deviation


def _moments(means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ``exp(z)`` below ``z = 0`` and ``1 + z`` above it."""
    square = noise.square()
    value = torch.exp(torch.add(means, square, alpha=0.5))
    deviation = torch.exp(means + square).mul_(square.neg().expm1_().neg_().sqrt_())
    near = (means > noise * (-NEAR_SEAM - 2.0 * noise)).view(-1).nonzero().squeeze(1)
    if len(near):
        parts = _moments_near_seam(means.view(-1)[near], noise.view(-1)[near])
        for whole, part in zip((value, deviation), parts, strict=True):
            whole.view(-1)[near] = part
    return value, deviation


def _moments_near_seam(means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """`_moments` as sums of the truncated moments of both sides of the seam."""
    seam = -means / noise
    above = normal_cdf(-seam)
    density = torch.exp(-0.5 * seam.square() - LOG_SQRT_2PI)
    line = 1.0 + means
    first = _below_seam(means, noise, seam, 1) + line * above + noise * density
    second = _below_seam(means, noise, seam, 2) + (line.square() + noise.square()) * above
    second = second + noise * (2.0 * line + noise * seam) * density
    return first, (second - first.square()).clamp_min(LEAST_DEVIATION**2).sqrt()


def _clipped_moments(
    means: Tensor, noise: Tensor, lower: tuple[float, float], upper: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """`_moments` with clipping; each limit as its z and its value there."""
    moments = list(line_moments(means, noise, max(lower[0], 0.0), max(upper[0], 0.0)))
    low, high = (((limit[0] - means) / noise) for limit in (lower, upper))
    for power in (1, 2):
        for end, sign in ((min(upper[0], 0.0), 1.0), (min(lower[0], 0.0), -1.0)):
            if math.isfinite(end):
                beyond = means - end
                part = math.exp(power * end) * _below_seam(beyond, noise, -beyond / noise, power)
                moments[power - 1] = moments[power - 1] + sign * part
        masses = lower[1] ** power * normal_cdf(low) + upper[1] ** power * normal_cdf(-high)
        moments[power - 1] = moments[power - 1] + masses
    first, second = moments
    return first, (second - first.square()).clamp_min(LEAST_DEVIATION**2).sqrt()


def _below_seam(means: Tensor, noise: Tensor, seam: Tensor, power: int) -> Tensor:
    """``E[exp(power z); z < 0] = exp(power mean + (power noise)^2 / 2) Phi(seam - power noise)``.

    Where Phi underflows, as ``exp(-seam^2 / 2) erfcx((power noise - seam) / sqrt(2)) / 2``, which is equal.
    """
    excess = power * noise - seam
    part = torch.exp(power * means + 0.5 * (power * noise).square()) * normal_cdf(-excess)
    far = excess > FAR_BEYOND_SEAM
    if not bool(far.any()):
        return part
    return torch.where(far, 0.5 * torch.exp(-0.5 * seam.square()) * torch.special.erfcx(excess * 0.5**0.5), part)


@dataclass(frozen=True, slots=True)
class Standardisation(Stored):
    """The standardised target that the network learns: ``(transform(y) - location) / scale``.

    Attributes:
        transform: Applied to the target first.
        location: Mean of the transformed training targets.
        scale: Their standard deviation.
        limits: Limits of the target, in its unit; None: there are none.
    """

    transform: Annotated[Transform, read_as(Annotated[Identity | Logarithm, Field(discriminator="kind")])]
    location: float
    scale: Positive
    limits: Limits | None = None

    def forward(self, targets: Tensor) -> Tensor:
        """Standardised targets of targets in their own unit; any shape."""
        return (self.transform.forward(targets) - self.location) / self.scale

    def standard_limits(self) -> tuple[float, float] | None:
        """The standardised limits, rounded to float32 as targets are; None: there are none."""
        if self.limits is None:
            return None
        ends = torch.tensor([self.limits.minimum, self.limits.maximum], dtype=torch.float64)
        lower, upper = torch.where(ends.isinf(), ends, self.forward(ends)).float().tolist()
        return lower, upper


TRANSFORMS: dict[str, type[Identity | Logarithm]] = {"none": Identity, "log": Logarithm}
"""Transforms by their name on the command line and in a checkpoint."""
