"""Observation models: how a target scatters around the function value of a draw.

All work in standardised units of the target. A likelihood reads P network outputs a row; its own learned
parameters, if any, are point estimates, one set a member. A new one is a class with the members of
`Likelihood` and a line in `make_likelihood`.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.errors import OptionError
from murho.model.networks.layers import inverse_softplus

__all__ = [
    "INITIAL_NOISE",
    "LOG_SQRT_2PI",
    "NOISE_FLOOR",
    "FixedNoise",
    "GaussianNoise",
    "HeteroscedasticNoise",
    "HomoscedasticNoise",
    "Likelihood",
]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)

NOISE_FLOOR = 1e-3
"""Smallest learned noise, as a fraction of the target's standard deviation.

A table without noise would drive the likelihood to infinity; what is below a thousandth of the target's
spread is of no use to anybody who acts on the number."""

INITIAL_NOISE = 0.5
"""Noise that a fit starts from, as a fraction of the target's standard deviation."""


class Likelihood(Protocol):
    """What the objective, the fit and the draws need of an observation model."""

    kind: str
    outputs: int
    means: int
    """How many of the outputs are means, K: the first ones. The others tell of the scatter."""

    @property
    def steady_outputs(self) -> dict[int, float]:
        """Outputs that start near a constant, whatever the row: their number, and the constant."""
        ...

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of every row under every draw.

        Args:
            outputs: Network outputs, ``[M, B, P]``.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.

        Returns:
            ``[M, B]``, nats.
        """
        ...

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, levelling: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """`log_density`, and ``factor`` times its derivative, written out.

        Args:
            outputs: Network outputs, ``[M, B, P]``.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.
            factor: Of the derivative.
            levelling: 0 gives the derivative. At 1 every row pulls its mean as hard as if all had the same noise,
                in between noise^(2 levelling) in place of noise^2 is taken out (Seitzer et al. 2022, "On the
                pitfalls of heteroscedastic uncertainty estimation", equation 5, for the mean alone): rows that are
                badly fitted early on would otherwise be called noisy, and never be fitted.

        Returns:
            Log density ``[M, B]`` and the derivative by the outputs ``[M, B, P]``. That of the sum over rows by
            the likelihood's own parameters is left in their ``grad``.
        """
        ...

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """Outputs with the function values of one row and the scatter around them of another.

        Args:
            outputs: Network outputs of rows whose function values are wanted, ``[S, B, P]``.
            others: Those of rows whose scatter is wanted, ``[S, B, P]``; the weights of a mixture are part of it.

        Returns:
            ``[S, B, P]``.
        """
        ...

    def components(
        self, outputs: Tensor, members: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The distribution of an observation given each draw: K Gaussians.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member behind each entry of the first dimension, ``[S]``; by default they are the M members.

        Returns:
            Means ``[S, B, K]``, standard deviations broadcastable to them, and weights ``[S, B, K]`` of sum 1
            over K, or None where K is 1.
        """
        ...


class GaussianNoise(nn.Module):
    """A Gaussian around the first output; what the three kinds below share."""

    kind: str
    outputs: int
    means = 1

    @property
    def steady_outputs(self) -> dict[int, float]:
        """See `Likelihood.steady_outputs`."""
        return {}

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Standard deviation of an observation given each draw, broadcastable to ``outputs[..., 0]``.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member behind each entry of the first dimension, ``[S]``; by default they are the M members.
        """
        raise NotImplementedError

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Likelihood.log_density`."""
        noise = self.noise(outputs)
        residual = (targets - outputs[..., 0]) / noise
        return -0.5 * residual.square() - torch.log(noise) - LOG_SQRT_2PI

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, levelling: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """See `Likelihood.gradient`."""
        noise = self.noise(outputs)
        precision = noise.reciprocal()
        residual = torch.sub(targets, outputs.select(2, 0)).mul_(precision)
        square = residual * residual
        log_density = torch.sub(torch.log(precision * math.exp(-LOG_SQRT_2PI)), square, alpha=0.5)
        scale = precision.mul_(factor)
        by_mean = residual.mul_(scale)
        if levelling > 0.0 and noise.shape[1] > 1:
            weight = noise.pow(2.0 * levelling)
            by_mean.mul_(weight.div_(weight.mean(dim=1, keepdim=True)))
        by_output = self._noise_gradient(square, scale, outputs)
        if by_output is None:
            return log_density, by_mean.unsqueeze(2)
        return log_density, torch.stack((by_mean, by_output), dim=2)

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 - nothing to set
        """Passes the derivative by the noise, ``scale (square - 1)``, on to what sets it.

        Args:
            square: Squared residuals in units of the noise, ``[M, B]``; may be overwritten.
            scale: The factor over the noise, broadcastable to them.
            outputs: Network outputs, ``[M, B, P]``.

        Returns:
            The derivative by the second output, ``[M, B]``; None where there is none.
        """
        return None

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """See `Likelihood.with_scatter_of`: what the network says beside the mean is about the noise."""
        return torch.cat((outputs[..., :1], others[..., 1:]), dim=-1)

    def components(
        self, outputs: Tensor, members: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `Likelihood.components`; K is 1."""
        return outputs[..., :1], self.noise(outputs, members).unsqueeze(-1), None


class FixedNoise(GaussianNoise):
    """Gaussian noise of a known standard deviation."""

    kind = "fixed"
    outputs = 1

    def __init__(self, sigma: float) -> None:
        """Takes the known noise.

        Args:
            sigma: Standard deviation in standardised units.
        """
        super().__init__()
        if not (math.isfinite(sigma) and sigma > 0.0):
            raise OptionError(f"noise sigma must be a positive number, not {sigma!r}")
        self.sigma = sigma

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one for all
        """See `GaussianNoise.noise`; ``[1, 1]``."""
        return outputs.new_full((1, 1), self.sigma)


class HomoscedasticNoise(GaussianNoise):
    """Gaussian noise of one learned standard deviation, ``floor + softplus(rho)``."""

    kind = "homoscedastic"
    outputs = 1

    def __init__(self, members: int, initial: float = INITIAL_NOISE) -> None:
        """Starts at a given noise.

        Args:
            members: M.
            initial: Standard deviation to start from, standardised units.
        """
        super().__init__()
        rho = inverse_softplus(torch.tensor(initial - NOISE_FLOOR, dtype=torch.float64)).float()
        self.rho = nn.Parameter(rho.expand(members, 1).clone())

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - the same for every row
        """See `GaussianNoise.noise`; ``[M, 1]`` or ``[S, 1]``."""
        rho = self.rho if members is None else self.rho[members]
        return NOISE_FLOOR + functional.softplus(rho)

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> None:  # noqa: ARG002 - the same for every row
        by_noise = square.sum(dim=1, keepdim=True).sub_(square.shape[1]).mul_(scale)
        self.rho.grad = by_noise.mul_(torch.sigmoid(self.rho))  # the slope of softplus


class HeteroscedasticNoise(GaussianNoise):
    """Gaussian noise that the network's second output sets row by row, ``floor + softplus(output)``."""

    kind = "heteroscedastic"
    outputs = 2

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - in the outputs
        """See `GaussianNoise.noise`; ``[M, B]`` or ``[S, B]``."""
        return NOISE_FLOOR + functional.softplus(outputs[..., 1])

    @property
    def steady_outputs(self) -> dict[int, float]:
        """See `Likelihood.steady_outputs`: the noise starts the same for every row."""
        return {1: float(inverse_softplus(torch.tensor(INITIAL_NOISE)))}

    def _noise_gradient(self, square: Tensor, scale: Tensor, outputs: Tensor) -> Tensor:
        return square.sub_(1.0).mul_(scale).mul_(torch.sigmoid(outputs.select(2, 1)))  # the slope of softplus
