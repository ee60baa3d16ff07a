"""What the posterior says where no training row has been.

Inputs that are zero for every training row (`model.encoding.encoder.Encoder.unmoved`: a number beyond its range, a
category never seen) have weights of which the rows say nothing. Their posterior is their prior, and a fit would find it
in the end; but a fit is stopped when its rows are learned, and until then such weights are what they were at the random
start. So they are set, in closed form.
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

__all__ = ["SILENT", "slope_of", "with_doubt"]

SILENT = 1e-3
"""sigma of weights through which such inputs reach hidden layers and noise: next to nothing, yet wide enough for an
update with rows from out there to move them."""


def slope_of(features: int) -> float:
    """Prior standard deviation of a slope beyond the range, in standard deviations of the target and of the feature.

    Under a linear model ``y = sum_j slope_j x_j`` of standardised quantities, slopes of this size make the target vary
    by one standard deviation: each feature has its fair share, ``1 / features`` of the variance.

    Args:
        features: How many features there are, at least 1.
    """
    return 1.0 / math.sqrt(features)


def with_doubt(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    unmoved: Sequence[int],
    slope: float,
    *,
    means: int = 1,
) -> dict[str, Tensor]:
    """The tensors of a fit, the weights of unmoved inputs set to ``N(0, slope^2)`` at the means.

    There the last layer reads the inputs (a skip, or a network without hidden layers), the function value of a draw
    gains ``slope_j d_j`` with its own ``slope_j`` for every input j at distance ``d_j``: doubt grows in proportion to
    the distance, by the same whatever the row. Hidden layers and noise hardly read such inputs then. Without a skip
    the weights of the first layer get the prior, of ``slope`` over the root of its width.

    Args:
        tensors: mu and rho by the names of `Architecture.shapes`; others are passed on.
        architecture: The network's sizes.
        unmoved: Numbers of the inputs that are zero for every training row.
        slope: Standard deviation, in standardised units of the target.
        means: How many outputs are means, the first ones.
    """
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    inputs, last = list(unmoved), len(architecture.layers) - 1
    if not architecture.hidden:
        _set(changed, 0, inputs, SILENT)
        _set(changed, 0, inputs, slope, means)
    elif architecture.skip:
        _set(changed, 0, inputs, SILENT)
        inputs = [architecture.hidden[-1] + number for number in inputs]
        _set(changed, last, inputs, SILENT)
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
