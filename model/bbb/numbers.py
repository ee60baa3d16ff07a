"""Likelihoods of numbers: fixed, homoscedastic and heteroscedastic Gaussian noise, and Gaussian mixtures.

A target at a limit counts as a value at or beyond it (Tobin 1958; a "Tobit" model): its log density is the logarithm of
the Gaussian's tail there.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.bbb.likelihood import INITIAL_NOISE, NOISE_FLOOR, NumericLikelihood
from murho.model.bbb.network import inverse_softplus
from murho.model.distributions.mixtures import LOG_SQRT_2PI, WideRule
from murho.model.distributions.predictive import Predictive
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def evened(self, outputs: Tensor, weights: Tensor, beta: float) -> Tensor:
        """Means with even pulls, where the noise differs between rows; see `Likelihood.evened`."""
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
        """The known sigma, ``[1, 1]``; see `GaussianNoise.noise`."""
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
        """The noise of each member, ``[M, 1]`` or ``[S, 1]``; see `GaussianNoise.noise`."""
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
        """The noise of each row, ``[M, B]`` or ``[S, B]``; see `GaussianNoise.noise`."""
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
        means, raw, logits = outputs.split(self.means, dim=-1)
        of_each = self.log_gaussians(means, NOISE_FLOOR + functional.softplus(raw), targets)
        return torch.logsumexp(torch.log_softmax(logits, dim=-1) + of_each, dim=-1)


def _weights(logits: Tensor) -> Tensor:
    """Softmax over the components. Transposed, it is ten times as fast in the engine's layout (rows contiguous)."""
    return torch.softmax(logits.transpose(-1, -2), dim=-2).transpose(-1, -2)
