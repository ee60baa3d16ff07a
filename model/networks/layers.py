"""A linear layer with independent Gaussian weights and biases, sampled by local reparameterisation."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["inverse_softplus", "local_reparameterisation"]


def inverse_softplus(values: Tensor) -> Tensor:
    """Return ``rho`` such that ``softplus(rho) = values``, for positive values of any shape."""
    return values + torch.log(-torch.expm1(-values))


def local_reparameterisation(
    inputs: Tensor,
    weight_mu: Tensor,
    weight_variance: Tensor,
    bias_mu: Tensor,
    bias_variance: Tensor,
    generator: torch.Generator | None,
    draws: int = 1,
) -> Tensor:
    """Sample a layer's outputs, independently for every row.

    The outputs of a row are Gaussian with mean ``x W_mu + b_mu`` and variance ``x^2 W_sigma^2 + b_sigma^2``. Sampling
    outputs instead of weights gives each row its own draw, and a gradient of far lower variance (Kingma, Salimans &
    Welling 2015, equation 6).

    Args:
        inputs: ``[M, B, inputs]``.
        weight_mu: ``[M, inputs, outputs]``.
        weight_variance: ``sigma^2``, ``[M, inputs, outputs]``.
        bias_mu: ``[M, 1, outputs]``.
        bias_variance: ``sigma^2``, ``[M, 1, outputs]``.
        generator: Source of the draws, on the device of the inputs.
        draws: Draws per row, S; all share one computation of mean and variance.

    Returns:
        ``[M, S * B, outputs]``; draw-major.
    """
    mean = torch.baddbmm(bias_mu, inputs, weight_mu)
    variance = torch.baddbmm(bias_variance, inputs.square(), weight_variance)
    if draws > 1:
        mean, variance = mean.repeat(1, draws, 1), variance.repeat(1, draws, 1)
    epsilon = torch.empty_like(mean).normal_(generator=generator)
    return torch.addcmul(mean, variance.sqrt(), epsilon)
