"""Answers of a fitted network: with the means alone, and under draws of the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.bbb.network import BayesianNetwork

__all__ = ["drawn_log_probabilities", "error_rate", "load_tensors", "mean_outputs", "mixture_log_probabilities"]

ROWS_AT_A_TIME = 1000


@torch.no_grad()
def mean_outputs(network: BayesianNetwork, inputs: Tensor) -> Tensor:
    """Logits of the network with all weights at their means, ``[N, C]``, for inputs ``[N, D]``."""
    parts = network.parts(network.mu.detach())
    hidden = inputs
    for first in range(0, len(parts), 2):
        hidden = (network.activation(hidden) if first else hidden) @ parts[first][0] + parts[first + 1][0]
    return hidden


@torch.no_grad()
def drawn_log_probabilities(network: BayesianNetwork, inputs: Tensor, draws: int, seed: int) -> Tensor:
    """Log probabilities under draws, ``[S, N, C]``.

    Every row has draws of its own (local reparameterisation): a row's distribution is that under draws of the weights,
    at a fraction of the time.

    Args:
        network: The network.
        inputs: ``[N, D]``.
        draws: S.
        seed: Seed of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for rows in inputs.split(ROWS_AT_A_TIME):
        outputs = network(rows, generator, draws)[0].view(draws, len(rows), -1)
        parts.append(torch.log_softmax(outputs, dim=-1))
    return torch.cat(parts, dim=1)


def mixture_log_probabilities(network: BayesianNetwork, inputs: Tensor, draws: int, seed: int) -> Tensor:
    """Log of the mean probabilities over draws, ``[N, C]``; takes the arguments of `drawn_log_probabilities`."""
    return drawn_log_probabilities(network, inputs, draws, seed).logsumexp(dim=0) - math.log(draws)


def error_rate(scores: Tensor, digits: Tensor) -> float:
    """Share of the images whose largest score, ``[N, C]``, is not at their digit, ``[N]``."""
    return float((scores.argmax(dim=1) != digits.long()).double().mean())


@torch.no_grad()
def load_tensors(network: BayesianNetwork, tensors: Mapping[str, Tensor]) -> None:
    """Copy the mu and rho of a checkpoint, by name, into a network of the same sizes."""
    for name, tensor in network.named_tensors().items():
        tensor.copy_(tensors[name])
