"""Gaussian noise with a standard deviation per row, predicted by the network's second output."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from murho.model.likelihoods.gaussian import GaussianNoise
from murho.model.likelihoods.likelihood import INITIAL_NOISE, NOISE_FLOOR
from murho.model.networks.layers import inverse_softplus

__all__ = ["HeteroscedasticNoise"]


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
