"""The posterior of weights from inputs that are zero in training: it is set to their prior, in closed form.

Some inputs are zero for every training row (`model.encoding.encoder.Encoder.zero_in_training`): the distance of a
number beyond its range, a category never seen. The rows carry no information about the weights of such inputs, so the
posterior of these weights is their prior. A fit ends before it gets there: early stopping leaves the weights near their
random start. The size of the prior comes from the fitted function (`model.training.extrapolation_trial`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from murho.model.networks.layers import inverse_softplus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.networks.bayesian_network import Architecture

__all__ = ["NEGLIGIBLE_SIGMA", "with_extrapolation_prior"]

NEGLIGIBLE_SIGMA = 1e-3
"""sigma of the weights from such inputs to hidden layers and noise: they have almost no effect, but an update with rows
beyond the range can move them."""


def with_extrapolation_prior(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    slopes: Mapping[int, float],
    *,
    means: int = 1,
) -> dict[str, Tensor]:
    """The tensors of a fit, with ``N(0, slope_j^2)`` for the weights to the means from each input j zero in training.

    If the last layer reads the inputs (with a skip, or without hidden layers), the function value of a draw changes by
    ``slope_j d_j`` for every such input j at distance ``d_j``; each draw has its own ``slope_j``. So epistemic_std
    grows in proportion to the distance, in the same way for every row. Hidden layers and noise then almost ignore such
    inputs. Without a skip the weights of the first layer get this prior, with ``slope / sqrt(width of the layer)``.

    Args:
        tensors: mu and rho by the names of `Architecture.shapes`; other tensors are returned unchanged.
        architecture: The network's sizes.
        slopes: Number of each input that is zero for every training row → standard deviation of its slope, in
            standardised units of the target.
        means: Number of means among the outputs; the means come first.
    """
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    last = len(architecture.layers) - 1
    for number, slope in slopes.items():
        if not architecture.hidden:
            _set(changed, 0, number, NEGLIGIBLE_SIGMA)
            _set(changed, 0, number, slope, means)
        elif architecture.skip:
            _set(changed, 0, number, NEGLIGIBLE_SIGMA)
            _set(changed, last, architecture.hidden[-1] + number, NEGLIGIBLE_SIGMA)
            _set(changed, last, architecture.hidden[-1] + number, slope, means)
        else:
            _set(changed, 0, number, slope / math.sqrt(architecture.hidden[0]))
    return changed


def _set(tensors: dict[str, Tensor], layer: int, number: int, sigma: float, means: int | None = None) -> None:
    """Set the weights from one input to the first ``means`` outputs (None: all) to ``N(0, sigma^2)``."""
    rho = inverse_softplus(torch.tensor(max(sigma, NEGLIGIBLE_SIGMA), dtype=torch.float64)).float()
    tensors[f"layers.{layer}.weight.mu"][:, number, :means] = 0.0
    tensors[f"layers.{layer}.weight.rho"][:, number, :means] = rho
