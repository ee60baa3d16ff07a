"""Test error without the weights of the lowest signal-to-noise ratio (Blundell et al. 2015, section 5.1, table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks.mnist_parts.bayes_answers import error_rate, load_tensors, mean_outputs, mixture_log_probabilities
from murho.model.bbb.network import BayesianNetwork
from murho.model.training.pruning import cut, signal_to_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.network import Architecture

__all__ = ["FRACTIONS", "Pruned", "decibels", "pruning_table", "weights_of"]

FRACTIONS = (0.0, 0.5, 0.75, 0.95, 0.98)
"""Shares of the weights to remove: those of the paper."""
DRAWS = 16


@dataclass(frozen=True, slots=True)
class Pruned:
    """A network without some of its weights.

    Attributes:
        fraction: Removed share of the weights; biases stay.
        weights: Weights that are left.
        threshold: The highest ratio ``|mu| / sigma`` of a removed weight; 0 where none is removed.
        mean_error: Test error of the means alone.
        error: Test error under draws.
        tensors: mu and rho by name.
    """

    fraction: float
    weights: int
    threshold: float
    mean_error: float
    error: float
    tensors: dict[str, Tensor]


def pruning_table(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    images: tuple[Tensor, Tensor],
    fractions: Sequence[float] = FRACTIONS,
    draws: int = DRAWS,
) -> list[Pruned]:
    """Prune a network to several shares, each from the whole network, without fitting it again.

    Args:
        tensors: mu and rho by name.
        architecture: The network's sizes.
        images: Inputs ``[N, D]`` and digits ``[N]`` of the error.
        fractions: Shares to remove, from 0 up to but not including 1.
        draws: S.
    """
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    inputs, digits = images
    found = []
    for fraction in fractions:
        if fraction == 0.0:
            pruned, threshold = dict(tensors), 0.0
            left = sum(tensor.numel() for name, tensor in tensors.items() if name.endswith(".weight.mu"))
        else:
            pruned, what = cut(tensors, architecture, fraction, held_inputs=())
            threshold, left = what.threshold, what.weights - what.removed
        load_tensors(network, pruned)
        mean_error = error_rate(mean_outputs(network, inputs), digits)
        error = error_rate(mixture_log_probabilities(network, inputs, draws, seed=0), digits)
        found.append(Pruned(fraction, left, threshold, mean_error, error, pruned))
    return found


def weights_of(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """All weights without biases: mu and rho, flat."""
    names = [name.removesuffix(".mu") for name in tensors if name.endswith(".weight.mu")]
    mu, rho = (torch.cat([tensors[f"{name}.{part}"].detach().flatten() for name in names]) for part in ("mu", "rho"))
    return mu, rho


def decibels(tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """Signal-to-noise ratio of every weight in decibels, ``10 log10(|mu| / sigma)``, as in the paper's figure 5."""
    return (10.0 * torch.log10(signal_to_noise(*weights_of(tensors)).clamp_min(1e-12))).numpy()
