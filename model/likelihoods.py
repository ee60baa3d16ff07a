"""Observation models: how a target scatters around the function value of a draw.

All work in standardised units of the target. A likelihood reads P network outputs a row; its own learned
parameters, if any, are point estimates, one set a member.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.errors import OptionError
from model.layers import inverse_softplus

__all__ = [
    "NOISE_FLOOR",
    "FixedNoise",
    "HeteroscedasticNoise",
    "HomoscedasticNoise",
    "Likelihood",
    "log_density",
    "make_likelihood",
]

NOISE_FLOOR = 1e-3
"""Smallest learned noise, as a fraction of the target's standard deviation.

A table without noise would drive the likelihood to infinity; what is below a thousandth of the target's
spread is of no use to anybody who acts on the number."""


class Likelihood(Protocol):
    """What the objective and the draws need of an observation model."""

    kind: str
    outputs: int

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Standard deviation of an observation given each draw, broadcastable to ``outputs[..., 0]``.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member behind each entry of the first dimension, ``[S]``; by default they are the M members.
        """
        ...


def log_density(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """Gaussian log density of every row under every draw.

    Args:
        likelihood: The observation model.
        outputs: Network outputs, ``[M, B, P]``; the first is the mean.
        targets: Standardised targets, ``[B]``.

    Returns:
        ``[M, B]``, nats.
    """
    noise = likelihood.noise(outputs)
    residual = (targets - outputs[..., 0]) / noise
    return -0.5 * residual.square() - torch.log(noise) - 0.5 * math.log(2.0 * math.pi)


class FixedNoise(nn.Module):
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
        """See `Likelihood.noise`; ``[1, 1]``."""
        return outputs.new_full((1, 1), self.sigma)


class HomoscedasticNoise(nn.Module):
    """Gaussian noise of one learned standard deviation, ``floor + softplus(rho)``."""

    kind = "homoscedastic"
    outputs = 1

    def __init__(self, members: int, initial: float = 0.5) -> None:
        """Starts at a given noise.

        Args:
            members: M.
            initial: Standard deviation to start from, standardised units.
        """
        super().__init__()
        rho = inverse_softplus(torch.tensor(initial - NOISE_FLOOR, dtype=torch.float64)).float()
        self.rho = nn.Parameter(rho.expand(members, 1).clone())

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - the same for every row
        """See `Likelihood.noise`; ``[M, 1]`` or ``[S, 1]``."""
        rho = self.rho if members is None else self.rho[members]
        return NOISE_FLOOR + functional.softplus(rho)


class HeteroscedasticNoise(nn.Module):
    """Gaussian noise that the network's second output sets row by row, ``floor + softplus(output)``."""

    kind = "heteroscedastic"
    outputs = 2

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - in the outputs
        """See `Likelihood.noise`; ``[M, B]`` or ``[S, B]``."""
        return NOISE_FLOOR + functional.softplus(outputs[..., 1])


def make_likelihood(
    kind: str, *, members: int, sigma: float | None = None
) -> FixedNoise | HomoscedasticNoise | HeteroscedasticNoise:
    """An observation model by name.

    Args:
        kind: ``fixed``, ``homoscedastic`` or ``heteroscedastic``.
        members: M.
        sigma: Known noise in standardised units, for ``fixed``.

    Raises:
        OptionError: The kind is unknown, or ``fixed`` comes without a sigma.
    """
    if kind == "fixed":
        if sigma is None:
            raise OptionError(
                "fixed noise needs its standard deviation: give --noise-sigma, in the target's unit"
            )
        return FixedNoise(sigma)
    if kind == "homoscedastic":
        return HomoscedasticNoise(members)
    if kind == "heteroscedastic":
        return HeteroscedasticNoise()
    raise OptionError(f"noise must be fixed, homoscedastic or heteroscedastic, not {kind!r}")
