"""Likelihoods of numbers made of Gaussians: fixed, homoscedastic and heteroscedastic noise, and mixtures.

A target at a limit counts as a value at or beyond it (Tobin 1958; a "Tobit" model). Its log density is replaced by the
logarithm of the Gaussian's tail there. Everything else of a gradient stays: `tail_terms` returns what takes the place
of the residual r and of its square, such that ``r / noise`` is still the derivative by the mean, and
``(r^2 - 1) / noise`` the one by the noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.bbb.likelihood import INITIAL_NOISE, NOISE_FLOOR, NumericLikelihood, beta_weights
from murho.model.bbb.network import inverse_softplus
from murho.model.distributions.mixtures import LOG_SQRT_2PI
from murho.model.distributions.predictive import Predictive
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.bbb.likelihood import LikelihoodOptions
    from murho.model.distributions.mixtures import WideRule
    from murho.model.distributions.transforms import Standardisation

__all__ = [
    "MOST_COMPONENTS",
    "FixedNoise",
    "GaussianMixtureLikelihood",
    "GaussianNoise",
    "HeteroscedasticNoise",
    "HomoscedasticNoise",
    "MixtureNoise",
    "noise_of",
    "rho_of",
    "tail_terms",
]


class GaussianMixtureLikelihood(NumericLikelihood):
    """An observation model of numbers: given a draw, the standardised target is a mixture of K Gaussians."""

    @abstractmethod
    def components(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The distribution of an observation given each draw: K Gaussians.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.

        Returns:
            Means ``[S, B, K]``, standard deviations broadcastable to the means, and weights ``[S, B, K]`` that sum to 1
            over K. The weights are None where K is 1.
        """

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
        """The mixture of Gaussians, widened and clipped; see `NumericLikelihood.predictive`."""
        means, noise, *weights = parts
        predictive = Predictive.of(
            means * standardisation.scale + standardisation.location,
            noise * standardisation.scale,
            weights[0] if weights else None,
            standardisation.transform,
            standardisation.limits,
        )
        return predictive if wide is None else predictive.with_wide(wide, standardisation.scale)


FAR = 10.0
"""Normal score from which on the ratio of density and tail is computed by its expansion, to 1e-4."""


def tail_terms(residual: Tensor, targets: Tensor, limits: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What stands for a Gaussian's terms in rows whose target is at a limit.

    With ``u = r`` at the maximum and ``u = -r`` at the minimum, the log tail is ``log Q(u)``, and its derivatives are
    those of a residual ``r = ±phi(u) / Q(u)`` and a square ``r^2 = 1 + u phi(u) / Q(u)``.

    Args:
        residual: ``(target - mean) / noise``, any shape.
        targets: Standardised targets, broadcastable to ``residual``.
        limits: Minimum and maximum, standardised; infinite: there is none.

    Returns:
        The mask of the rows at a limit, the log tail, the residual and the square, each broadcastable to ``residual``.
        The last three hold where the mask is set.
    """
    above, below = targets >= limits[1], targets <= limits[0]
    sides = above.to(residual) - below.to(residual)
    reach = sides * residual
    near = reach.clamp_max(FAR)
    log_tail = torch.special.log_ndtr(-reach)
    ratio = torch.exp(-0.5 * near.square() - LOG_SQRT_2PI - torch.special.log_ndtr(-near))
    far = reach.clamp_min(FAR)
    ratio = torch.where(reach > FAR, far + far.reciprocal() - 2.0 * far.pow(-3.0), ratio)
    return above | below, log_tail, sides * ratio, 1.0 + reach * ratio


class GaussianNoise(GaussianMixtureLikelihood):
    """``N(y; output_0, noise^2)``. A subclass defines the noise."""

    outputs = 1
    means = 1
    mixture_outputs = True

    @abstractmethod
    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Standard deviation of an observation given each draw, broadcastable to ``outputs[..., 0]``.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.
        """

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of a Gaussian, ``[M, B]``; see `Likelihood.log_density`."""
        noise = self.noise(outputs)
        residual = (targets - outputs[..., 0]) / noise
        log_density = -0.5 * residual.square() - torch.log(noise) - LOG_SQRT_2PI
        if self.limits is None:
            return log_density
        at_limit, log_tail, _, _ = tail_terms(residual, targets, self.limits)
        return torch.where(at_limit, log_tail, log_density)

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, beta: float = 0.0, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log density and its derivative, in closed form; see `Likelihood.gradient`."""
        noise = self.noise(outputs)
        precision = noise.reciprocal()
        residual = torch.sub(targets, outputs.select(2, 0)).mul_(precision)
        square = residual * residual
        log_density = torch.sub(torch.log(precision * math.exp(-LOG_SQRT_2PI)), square, alpha=0.5)
        if self.limits is not None:
            at_limit, *terms = tail_terms(residual, targets, self.limits)
            log_density, residual, square = (
                torch.where(at_limit, term, part)
                for term, part in zip(terms, (log_density, residual, square), strict=True)
            )
        scale = precision.mul_(factor)
        if weights is not None:
            scale = scale * weights
        by_mean = residual.mul_(scale)
        if beta > 0.0 and noise.shape[1] > 1:
            by_mean.mul_(beta_weights(noise, beta, weights))
        by_output = self._noise_gradient(square, scale, outputs)
        if by_output is None:
            return log_density, by_mean.unsqueeze(2)
        return log_density, torch.stack((by_mean, by_output), dim=2)

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 - the noise is not learned here
        """Apply the chain rule from the noise, with derivative ``scale (square - 1)``, to the source of the noise.

        Args:
            square: Squared residuals in units of the noise, ``[M, B]``; may be overwritten.
            scale: ``factor / noise`` times the weights of the rows, broadcastable to ``square``.
            outputs: Network outputs, ``[M, B, P]``.

        Returns:
            The derivative by the second output, ``[M, B]``; None if the network has no second output.
        """
        return None

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

    def __init__(self, sigma: float) -> None:
        """Store the known noise.

        Args:
            sigma: Standard deviation in standardised units.

        Raises:
            OptionError: ``sigma`` is not a positive number.
        """
        super().__init__()
        if not (math.isfinite(sigma) and sigma > 0.0):
            raise OptionError(f"noise sigma must be a positive number, not {sigma!r}")
        self.sigma = sigma

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Fixed noise with the sigma of the options; see `Likelihood.make`."""
        if options.sigma is None:
            raise OptionError("fixed noise needs its standard deviation: give --noise-sigma, in the target's unit")
        return cls(options.sigma)

    def to_json(self) -> dict[str, Any]:
        """Kind and sigma, for ``model.json``; see `Likelihood.to_json`."""
        return super().to_json() | {"sigma": self.sigma}

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one sigma for all
        """The known sigma, ``[1, 1]``; see `GaussianNoise.noise`."""
        return outputs.new_full((1, 1), self.sigma)


def noise_of(rho: Tensor) -> Tensor:
    """``floor + softplus(rho)``: the learned standard deviation, standardised units; any shape."""
    return NOISE_FLOOR + functional.softplus(rho)


def rho_of(noise: Tensor) -> Tensor:
    """The inverse of `noise_of`; noise at or below the floor gives a finite rho."""
    return inverse_softplus((noise - NOISE_FLOOR).clamp_min(1e-8))


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
        rho = rho_of(torch.tensor(initial, dtype=torch.float64)).float()
        self.rho = nn.Parameter(rho.expand(members, 1).clone())
        self._earlier: tuple[float, Tensor] | None = None

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Homoscedastic noise for M members; see `Likelihood.make`."""
        return cls(options.members)

    def remember(self, share: float) -> None:
        """Count earlier rows with squared residuals as large as the present variance; see `Likelihood.remember`."""
        self._earlier = share, noise_of(self.rho.detach()).square()

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - the same for every row
        """The noise of each member, ``[M, 1]`` or ``[S, 1]``; see `GaussianNoise.noise`."""
        return noise_of(self.rho if members is None else self.rho[members])

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> None:  # noqa: ARG002 - the same for every row
        if scale.shape[1] == 1:
            by_noise = square.sum(dim=1, keepdim=True).sub_(square.shape[1]).mul_(scale)
        else:  # rows with weights of their own
            by_noise = square.sub_(1.0).mul_(scale).sum(dim=1, keepdim=True)
        if self._earlier is not None:
            # The slope of share (log noise + variance / (2 noise^2)): minus the log density of the earlier rows.
            share, variance = self._earlier
            noise = noise_of(self.rho)
            by_noise += share * (noise.reciprocal() - variance / noise**3)
        self.rho.grad = by_noise.mul_(torch.sigmoid(self.rho))  # the slope of softplus


class HeteroscedasticNoise(GaussianNoise):
    """``N(y; output_0, noise^2)`` with ``noise = floor + softplus(output_1)``."""

    kind = "heteroscedastic"
    outputs = 2

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - outputs are per draw already
        """The noise of each row, ``[M, B]`` or ``[S, B]``; see `GaussianNoise.noise`."""
        return NOISE_FLOOR + functional.softplus(outputs[..., 1])

    @property
    def initial_outputs(self) -> dict[int, float]:
        """The initial noise, the same for every row; see `Likelihood.initial_outputs`."""
        return {1: float(inverse_softplus(torch.tensor(INITIAL_NOISE)))}

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> Tensor:
        return square.sub_(1.0).mul_(scale).mul_(torch.sigmoid(outputs.select(2, 1)))  # the slope of softplus


MOST_COMPONENTS = 20


class MixtureNoise(GaussianMixtureLikelihood):
    """``sum_k weight_k N(y; mean_k, noise_k^2)``: means, noises and weights are outputs of the network.

    For targets with skewed, heavy-tailed or multimodal scatter (Bishop 1994, "Mixture density networks"). The P = 3 K
    outputs are K means, then K noises before softplus, then K weights before softmax.
    """

    kind = "mixture"
    mixture_outputs = True

    def __init__(self, components: int) -> None:
        """Store the number of components.

        Args:
            components: K, 1 to 20.

        Raises:
            OptionError: K is out of range.
        """
        super().__init__()
        if not 1 <= components <= MOST_COMPONENTS:
            raise OptionError(f"a mixture has 1 to {MOST_COMPONENTS} components a row, not {components}")
        self.means = components
        self.outputs = 3 * components

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Mixture noise with the K of the options; see `Likelihood.make`."""
        if options.components is None:
            raise OptionError("mixture noise needs its number of components: give --noise-components")
        return cls(options.components)

    def to_json(self) -> dict[str, Any]:
        """Kind and K, for ``model.json``; see `Likelihood.to_json`."""
        return super().to_json() | {"components": self.means}

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
        """The mixture of ``others``, moved by the weighted mean of the shifts of its components.

        See `Likelihood.with_scatter_of` for the arguments. Weights are part of the scatter: extrapolated weights could
        select components that no training row has fitted, and the means of those could be anything.
        """
        there, scatter = others[..., : self.means], others[..., self.means :]
        weights = _weights(others[..., 2 * self.means :])
        moved = (weights * (outputs[..., : self.means] - there)).sum(dim=-1, keepdim=True)
        return torch.cat((there + moved, scatter), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of the mixture, ``[M, B]``; see `Likelihood.log_density`."""
        joint, _, _, _ = self._joint(outputs, targets)
        return torch.logsumexp(joint, dim=-1)

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, beta: float = 0.0, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log density and its derivative (Bishop 1994, equations 35 to 39); see `Likelihood.gradient`."""
        joint, residual, square, noise = self._joint(outputs, targets)
        log_density = torch.logsumexp(joint, dim=-1)
        share = torch.exp(joint - log_density.unsqueeze(-1))  # responsibility of each component for the target
        gradient = torch.empty_like(outputs)
        by_mean, by_raw, by_logit = gradient.split(self.means, dim=-1)
        torch.mul(share, residual / noise, out=by_mean)
        if beta > 0.0:
            by_mean.mul_(beta_weights(noise, beta, weights))
        by_noise = share * (square - 1.0) / noise
        torch.mul(by_noise, -torch.expm1(NOISE_FLOOR - noise), out=by_raw)
        torch.sub(share, torch.softmax(outputs[..., 2 * self.means :], dim=-1), out=by_logit)
        if weights is not None:
            gradient.mul_(weights.unsqueeze(-1))
        return log_density, gradient.mul_(factor)

    def _joint(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log weight plus log density of each component, residuals and squares in units of the noise, and the noise."""
        means, raw, logits = outputs.split(self.means, dim=-1)
        noise = NOISE_FLOOR + functional.softplus(raw)
        residual = (targets.unsqueeze(-1) - means) / noise
        square = residual.square()
        density = -0.5 * square - torch.log(noise) - LOG_SQRT_2PI
        if self.limits is not None:
            at_limit, *terms = tail_terms(residual, targets.unsqueeze(-1), self.limits)
            density, residual, square = (
                torch.where(at_limit, term, part) for term, part in zip(terms, (density, residual, square), strict=True)
            )
        return torch.log_softmax(logits, dim=-1) + density, residual, square, noise


def _weights(logits: Tensor) -> Tensor:
    """Softmax over the components. Transposed, it is ten times as fast in the engine's layout (rows contiguous)."""
    return torch.softmax(logits.transpose(-1, -2), dim=-2).transpose(-1, -2)
