"""The posterior of weights that no training row informs: their prior.

Some inputs are zero for every training row (`model.encoding.encoder.Encoder.zero_in_training`): the distance of a
number beyond its range, a category never seen. The rows say nothing of their weights, so the posterior of these is
their prior. A fit would find it in the end, but it is stopped once its rows are learned. Until then such weights stay
near their random start. So they are set in closed form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from murho.model.networks.layers import inverse_softplus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.networks.bayesian_network import Architecture

__all__ = ["NEGLIGIBLE_SIGMA", "extrapolation_slope", "with_extrapolation_prior"]

NEGLIGIBLE_SIGMA = 1e-3
"""sigma of weights through which such inputs reach hidden layers and noise: next to nothing, yet wide enough for an
update with rows from out there to move them."""


def extrapolation_slope(features: int) -> float:
    """Prior standard deviation of a slope beyond the range, in standard deviations of the target and of the feature.

    Under a linear model ``y = sum_j slope_j x_j`` of standardised quantities, slopes of this size make the target vary
    by one standard deviation: each feature has its fair share, ``1 / features`` of the variance.

    Args:
        features: How many features there are, at least 1.
    """
    return 1.0 / math.sqrt(features)


def with_extrapolation_prior(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    zero_in_training: Sequence[int],
    slope: float,
    *,
    means: int = 1,
) -> dict[str, Tensor]:
    """The tensors of a fit, with ``N(0, slope^2)`` for the weights from inputs without training rows to the means.

    Where the last layer reads the inputs (a skip, or a network without hidden layers), the function value of a draw
    gains ``slope_j d_j`` for every such input j at distance ``d_j``, each draw with a ``slope_j`` of its own. So
    epistemic_std grows in proportion to the distance, alike for every row. Hidden layers and noise then hardly read
    such inputs. Without a skip the weights of the first layer get this prior, with ``slope`` over the root of its
    width.

    Args:
        tensors: mu and rho by the names of `Architecture.shapes`; others are passed on.
        architecture: The network's sizes.
        zero_in_training: Numbers of the inputs that are zero for every training row.
        slope: Standard deviation, in standardised units of the target.
        means: How many outputs are means, the first ones.
    """
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    inputs, last = list(zero_in_training), len(architecture.layers) - 1
    if not architecture.hidden:
        _set(changed, 0, inputs, NEGLIGIBLE_SIGMA)
        _set(changed, 0, inputs, slope, means)
    elif architecture.skip:
        _set(changed, 0, inputs, NEGLIGIBLE_SIGMA)
        inputs = [architecture.hidden[-1] + number for number in inputs]
        _set(changed, last, inputs, NEGLIGIBLE_SIGMA)
        _set(changed, last, inputs, slope, means)
    else:
        _set(changed, 0, inputs, slope / math.sqrt(architecture.hidden[0]))
    return changed


def _set(
    tensors: dict[str, Tensor], layer: int, inputs: Sequence[int], sigma: float, means: int | None = None
) -> None:
    """Sets the weights from some inputs to all outputs, or to the first ones, to ``N(0, sigma^2)``."""
    rho = inverse_softplus(torch.tensor(sigma, dtype=torch.float64)).float()
    tensors[f"layers.{layer}.weight.mu"][:, inputs, :means] = 0.0
    tensors[f"layers.{layer}.weight.rho"][:, inputs, :means] = rho
